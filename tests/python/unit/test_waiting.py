"""Timeouts: what is no time to wait is refused, and what is too long for a clock is for ever."""

import math
import time
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pytest

import pyqstore
from pyqstore import aio
from pyqstore.waiting import SLICE_NS, Deadline, check_timeout


def test_what_no_clock_can_count_is_for_ever() -> None:
    for timeout in (None, math.inf, 1e300, 10**400, 2**63):
        assert check_timeout(timeout) == math.inf
        deadline = Deadline(timeout)
        assert (deadline.slice_ns(), deadline.over) == (SLICE_NS, False)
    assert check_timeout(3) == 3
    for timeout in (-1, -math.inf, math.nan, Decimal("NaN"), Decimal(-1)):
        with pytest.raises(ValueError):
            Deadline(timeout)  # type: ignore[arg-type]
    assert check_timeout(Decimal("0.5")) == 0.5  # type: ignore[arg-type]


def test_a_timeout_too_long_for_the_clock_is_accepted(channel: pyqstore.Channel) -> None:
    channel.confirm_select()
    assert channel.wait_for_confirms(1e300)


async def test_receipts_and_channels_check_their_timeouts_alike(path: Path) -> None:
    options = {"commit_delay_us": 1_000_000}
    async with await aio.open(path, **options) as store, await store.channel() as channel:
        await channel.queue_declare("q", durable=True)
        await channel.confirm_select()
        receipt = await channel.publish_batch(pa.table({"body": [b"x"]}), "", "q")
        for timeout in (-1, math.nan):
            with pytest.raises(ValueError):
                await receipt.wait(timeout)
            with pytest.raises(ValueError):
                await channel.wait_for_confirms(timeout)
            with pytest.raises(ValueError):
                await channel.get_batch("q", timeout=timeout)
        assert await receipt.wait(1e300)
        assert await channel.wait_for_confirms(10**400)
        assert len(await channel.get_batch("q", timeout=1e300)) == 1


@pytest.mark.clock
def test_a_wait_for_confirms_ends_in_time_although_the_commit_does_not(path: Path) -> None:
    """Whoever waited led the commit, and waited for as long as that took."""
    with pyqstore.open(path, commit_delay_us=1_000_000) as store, store.channel() as channel:
        channel.queue_declare("q", durable=True)
        channel.confirm_select()
        channel.basic_publish("", "q", b"", pyqstore.Properties(delivery_mode=2))
        began = time.monotonic()
        with pytest.raises(TimeoutError):
            channel.wait_for_confirms(timeout=0)
        with pytest.raises(TimeoutError):
            channel.wait_for_confirms(timeout=0.05)
        assert time.monotonic() - began < 0.9
        assert channel.wait_for_confirms()
