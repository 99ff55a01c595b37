"""Signals that end a command which goes on for ever."""

from __future__ import annotations

import signal

import pytest

from pyqstore.cli import shared


def test_two_signals_at_once_are_one() -> None:
    """As ``timeout`` sends them, to a process and to its group."""
    for number in (signal.SIGTERM, signal.SIGINT):
        with shared.stopping() as stop:
            assert not stop.is_set()
            for _ in range(2):
                signal.raise_signal(number)
            assert stop.is_set()


def test_another_ctrl_c_interrupts_and_another_sigterm_does_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(shared, "_TWICE_S", 0.0)
    for number in (signal.SIGTERM, signal.SIGINT):
        with shared.stopping() as stop:
            signal.raise_signal(number)
            signal.raise_signal(signal.SIGTERM)
            assert stop.is_set()
            with pytest.raises(KeyboardInterrupt):
                signal.raise_signal(signal.SIGINT)


def test_handlers_are_as_before_behind_it() -> None:
    before = [signal.getsignal(each) for each in (signal.SIGTERM, signal.SIGINT)]
    with shared.stopping():
        pass
    assert [signal.getsignal(each) for each in (signal.SIGTERM, signal.SIGINT)] == before
