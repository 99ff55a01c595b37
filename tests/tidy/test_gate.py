"""What the gate says of stages that pass, fail, cannot begin, and of tests that fail once."""

import importlib.util
import json
import sys
from pathlib import Path
from types import ModuleType

import pytest

TOOLS = Path(__file__).resolve().parents[2] / "tools"

# A stage is a shell script here: the first argument of ./dev names it.
DEV = """#!/bin/sh
outcome() {
    printf '{"name": "%s", "outcome": "%s", "text": "E why", "again": %s}\\n' "$@"
}
case $1 in
good) outcome one passed true; outcome two skipped true ;;
once) if [ -e once ]; then outcome late passed true; else
    touch once; outcome late failed true; outcome other passed true; status=1; fi ;;
bad) outcome always failed true; status=1 ;;
exact) if [ -e exact ]; then outcome lost passed true; else
    touch exact; outcome lost failed false; status=1; fi ;;
cut) if [ -e cut ]; then outcome late passed true; else
    touch cut; outcome late failed true; status=3; fi ;;
broken) echo "no compiler" >&2; status=2 ;;
single) ;;
endless) sleep 1000 ;;
esac >>"$QS_OUTCOMES"
exit ${status:-0}
"""


@pytest.fixture
def stages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    spec = importlib.util.spec_from_file_location("stages", TOOLS / "stages.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "stages", module)  # its dataclasses look there
    spec.loader.exec_module(module)
    (tmp_path / "dev").write_text(DEV)
    (tmp_path / "dev").chmod(0o755)
    monkeypatch.setattr(module, "ROOT", tmp_path)
    monkeypatch.setattr(module, "FOLDER", tmp_path / "stages")
    return module


def played(stages: ModuleType, *names: str, limit_s: float = 60.0) -> list[dict[str, str]]:
    lane = [stages.Stage(name, (name,), again=(name,), limit_s=limit_s) for name in names]
    return [
        {outcome.name: outcome.outcome for outcome in result.outcomes}
        for result in stages.play_all(lane)
    ]


def test_stages_go_on_after_one_that_failed(stages: ModuleType) -> None:
    assert played(stages, "bad", "good", "single") == [
        {"always": "failed"},
        {"one": "passed", "two": "skipped"},
        {"single": "passed"},
    ]


def test_a_test_that_passes_by_itself_is_flaky(stages: ModuleType) -> None:
    assert played(stages, "once") == [{"late": "flaky", "other": "passed"}]


def test_a_test_that_looks_for_lost_messages_has_no_second_try(stages: ModuleType) -> None:
    assert played(stages, "exact") == [{"lost": "failed"}]


def test_a_stage_that_cannot_begin_or_does_not_end_is_a_failure(stages: ModuleType) -> None:
    assert played(stages, "broken") == [{"broken": "failed"}]
    assert played(stages, "endless", limit_s=0.2) == [{"endless": "failed"}]


def test_a_stage_that_did_not_go_through_its_tests_is_a_failure_though_those_of_it_pass(
    stages: ModuleType,
) -> None:
    assert played(stages, "cut") == [{"late": "flaky", "cut": "failed"}]


def test_the_report_names_each_failure_and_ends_with_the_sums(
    stages: ModuleType, capsys: pytest.CaptureFixture[str]
) -> None:
    lane = [stages.Stage(name, (name,), again=(name,)) for name in ("bad", "once", "broken")]
    assert stages.report(stages.play_all(lane), 1.0) == 2
    told = capsys.readouterr().out
    assert "FAILED bad: always\n    E why" in told
    assert "FAILED broken: broken\n    no compiler\n    status 2" in told
    assert "FLAKY once: late\n    E why" in told
    assert told.endswith("\n2 passed, 2 failed\n")


def test_an_unfinished_line_of_a_killed_stage_is_left_out(
    stages: ModuleType, tmp_path: Path
) -> None:
    whole = json.dumps({"name": "one", "outcome": "passed"})
    (tmp_path / "outcomes").write_text(f'{whole}\n{{"name": "tw')
    assert [each.name for each in stages.written(tmp_path / "outcomes")] == ["one"]
