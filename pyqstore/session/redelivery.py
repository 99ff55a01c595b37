"""The delay and the number of redeliveries."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import cast

__all__ = ["UNLIMITED", "RedeliveryPolicy"]

UNLIMITED = -1


@dataclass(frozen=True, kw_only=True)
class RedeliveryPolicy:
    """The policy for redelivering a message that was rolled back or recovered, or whose listener
    raised.  Times are seconds.

    - ``maximum_redeliveries``: 6, so seven deliveries; then it is a dead letter.  -1: no limit.
    - ``initial_redelivery_delay``: before the first redelivery.
    - ``redelivery_delay``: before each further one.  With ``use_exponential_back_off`` instead the
      delay before times ``back_off_multiplier``, at most ``maximum_redelivery_delay`` (-1: no
      limit).
    - ``use_collision_avoidance``: each delay but the first is longer or shorter by up to
      ``collision_avoidance_factor`` of it, at random.
    - ``non_blocking_redelivery``: others pass the message while it waits.  Else its consumer
      delivers nothing until it is due.

    TypeError and ValueError that name the field.
    """

    maximum_redeliveries: int = 6
    initial_redelivery_delay: float = 1.0
    redelivery_delay: float = 1.0
    use_exponential_back_off: bool = False
    back_off_multiplier: float = 5.0
    maximum_redelivery_delay: float = UNLIMITED
    use_collision_avoidance: bool = False
    collision_avoidance_factor: float = 0.15
    non_blocking_redelivery: bool = False

    def __post_init__(self) -> None:
        number = cast("object", self.maximum_redeliveries)
        if not isinstance(number, int) or isinstance(number, bool):
            raise TypeError(f"maximum_redeliveries must be int, not {type(number).__name__}")
        if self.maximum_redeliveries < UNLIMITED:
            raise ValueError(f"maximum_redeliveries must be -1 or more, not {number}")
        _check("initial_redelivery_delay", self.initial_redelivery_delay)
        _check("redelivery_delay", self.redelivery_delay)
        _check("back_off_multiplier", self.back_off_multiplier)
        if self.maximum_redelivery_delay != UNLIMITED:
            _check("maximum_redelivery_delay", self.maximum_redelivery_delay)
        _check("collision_avoidance_factor", self.collision_avoidance_factor, 1.0)

    def allows(self, deliveries: int) -> bool:
        """Whether a message with this many deliveries may be delivered again."""
        return not 0 <= self.maximum_redeliveries < deliveries

    def delay(self, deliveries: int) -> float:
        """The seconds until the next delivery of a message with this many deliveries, 1 or more."""
        delay = self.initial_redelivery_delay
        if deliveries <= 1:
            return delay
        if self.use_exponential_back_off and self.back_off_multiplier > 1:
            for _ in range(min(deliveries - 1, 1024)):
                before = delay
                delay = delay * self.back_off_multiplier if delay > 0 else self.redelivery_delay
                if self.maximum_redelivery_delay != UNLIMITED:
                    delay = min(delay, max(self.maximum_redelivery_delay, self.redelivery_delay))
                if delay in (before, float("inf")):
                    break
        else:
            delay = self.redelivery_delay
        if self.use_collision_avoidance:
            delay += delay * random.uniform(-1, 1) * self.collision_avoidance_factor
        return delay


def _check(name: str, value: object, most: float = float("inf")) -> None:
    if not isinstance(value, int | float) or isinstance(value, bool):
        raise TypeError(f"{name} must be a number, not {type(value).__name__}")
    if not 0 <= value <= most:  # refuses NaN, too
        at_most = "" if most == float("inf") else f" and at most {most:g}"
        raise ValueError(f"{name} must be 0 or more{at_most}, not {value}")
