"""The commands that show what there is."""

from __future__ import annotations

import datetime
from pathlib import Path
from typing import Any

import click

from ..control.wire import Report
from ..terminal import visible
from .shared import ask_store, directory, json_option, print_json, print_tables, size, table

__all__ = ["inspect", "queues", "stats"]

_COUNTS = ("ready", "unacked", "delayed")
_STATES = ("alpha", "beta", "gamma", "delta")
_OFFSETS = ("first", "next", "segments")
_KINDS = ("lazy", "stream")


@click.command()
@directory
@json_option
def inspect(directory: Path, as_json: bool) -> None:
    """Show queues with their counts, and files with their bytes."""
    report = ask_store(directory, "inspect")
    if as_json:
        print_json(report)
        return
    _print_queues(report)
    if report["staging"]:
        staged = table("staged by Spark job", "files", "bytes", "age")
        for job in report["staging"]:
            age = str(datetime.timedelta(seconds=job["age_s"]))
            staged.add_row(visible(job["job"]), str(job["files"]), size(job["bytes"]), age)
        print_tables(staged)
    if report["inbox"]:
        asked = table("asked of the owner", "state", "bytes", "age", "error")
        for one in report["inbox"]:
            age = str(datetime.timedelta(seconds=one["age_s"]))
            words = [one["state"], size(one["bytes"]), age, visible(one["error"])]
            asked.add_row(visible(one["name"]), *words)
        print_tables(asked)


def _print_queues(report: Report) -> None:
    rows = table("queue", *_COUNTS, *_STATES, "RAM", "disk")
    streams = table("stream", *_OFFSETS)
    for name, status in report["queues"].items():
        rows.add_row(
            visible(name) + next((f" ({kind})" for kind in _KINDS if status[kind]), ""),
            *(str(status[f"messages_{key}"]) for key in _COUNTS),
            *(str(status[key]) for key in _STATES),
            size(status["ram_bytes"]),
            size(status["disk_bytes"]),
        )
        if status["stream"]:
            streams.add_row(visible(name), *(str(status[key]) for key in _OFFSETS))
    files = table("directory", "files", "bytes")
    for name, count in report["files"].items():
        files.add_row(name, str(count), size(report["bytes"][name]))
    print_tables(rows, *([streams] if streams.row_count else []), files)


@click.command()
@directory
@json_option
def stats(directory: Path, as_json: bool) -> None:
    """Show the store's numbers: of its recovery, its files, its memory."""
    report = ask_store(directory, "stats")
    if as_json:
        print_json(report)
        return
    rows = table("name", "value")
    for name, value in report.items():
        if not isinstance(value, dict):
            rows.add_row(name, visible(str(value)))
        elif name != "recovery_report":  # its numbers stand there already
            for part, number in value.items():
                rows.add_row(f"{name}.{part}", visible(str(number)))
    print_tables(rows)


@click.command()
@directory
@json_option
def queues(directory: Path, as_json: bool) -> None:
    """List queues, exchanges and bindings."""
    report = ask_store(directory, "queues")
    if as_json:
        print_json(report)
        return
    found = table("queue", *_COUNTS, "consumers", "durable")
    for name, status in report["queues"].items():
        found.add_row(
            visible(name) + next((f" ({kind})" for kind in _KINDS if status[kind]), ""),
            *(str(status[f"messages_{key}"]) for key in _COUNTS),
            str(status["consumers"]),
            _yes(status["durable"]),
        )
    exchanges = table("exchange", "type", "durable")
    for exchange in report["exchanges"]:
        exchanges.add_row(
            visible(exchange["name"]) or "(default)", exchange["type"], _yes(exchange["durable"])
        )
    bindings = table("exchange", "destination", "routing key")
    for binding in report["bindings"]:
        kind = " (exchange)" if binding["to_exchange"] else ""
        bindings.add_row(
            visible(binding["source"]),
            visible(binding["destination"]) + kind,
            visible(binding["routing_key"]),
        )
    print_tables(found, exchanges, *([bindings] if bindings.row_count else []))


def _yes(value: Any) -> str:
    return "yes" if value else "no"
