"""How much Hypothesis tries: QS_MODELS=short, the gate, a third and the same each time."""

from __future__ import annotations

import os

from hypothesis import HealthCheck, settings


def model_settings(examples: int, steps: int) -> settings:
    """Settings of a model; QS_MODEL_EXAMPLES is for more or fewer examples."""
    short = os.environ.get("QS_MODELS") == "short"
    full = int(os.environ.get("QS_MODEL_EXAMPLES", examples))
    return settings(
        max_examples=max(full // 3, 1) if short else full,
        stateful_step_count=steps,
        derandomize=short,
        deadline=None,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
    )
