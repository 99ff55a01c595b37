"""What ./dev lint finds when a lock is not held where csrc/base/thread_safety.h says so."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

PLANTED = """
#include "lock.h"
#include "thread_safety.h"

struct counter {
    struct qsi_mutex mutex;
    int count QSI_GUARDED_BY(qsi_store_mutex);
};

void qsi_counter_lock(struct counter *counter) QSI_ACQUIRES(qsi_store_mutex);
void qsi_counter_unlock(struct counter *counter) QSI_RELEASES(qsi_store_mutex);
int qsi_counter_next(struct counter *counter) QSI_REQUIRES(qsi_store_mutex);
int qsi_planted(struct counter *counter);

int qsi_counter_next(struct counter *counter)
{
    QS_ASSERT_HELD(&counter->mutex);
    return ++counter->count;
}

int qsi_planted(struct counter *counter)
{
    int count = 0;

    BODY
    return count;
}
"""
RIGHT = """
    qsi_counter_lock(counter);
    count = qsi_counter_next(counter);
    qsi_counter_unlock(counter);
"""


def check(folder: Path, body: str) -> tuple[int, str]:
    source = folder / "planted.c"
    source.write_text(PLANTED.replace("BODY", body))
    done = subprocess.run(
        [sys.executable, ROOT / "tools/check_locks.py", source],
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        check=False,
    )
    if done.returncode == 3:
        missing = pytest.fail if os.environ.get("QS_REQUIRE") == "all" else pytest.skip
        missing(done.stdout)
    return done.returncode, done.stdout


def test_lint_accepts_a_lock_that_is_held(tmp_path: Path) -> None:
    assert check(tmp_path, RIGHT) == (0, "")


@pytest.mark.parametrize(
    ("body", "complaint"),
    [
        ("count = counter->count;", "reading variable 'count' requires holding lock"),
        ("counter->count = 1;", "writing variable 'count' requires holding lock"),
        ("count = qsi_counter_next(counter);", "calling function 'qsi_counter_next' requires"),
        ("qsi_counter_lock(counter);", "is still held at the end of function"),
        ("qsi_counter_unlock(counter);", "that was not held"),
        (RIGHT + "count += counter->count;", "reading variable 'count' requires holding lock"),
    ],
)
def test_lint_refuses_a_lock_that_is_not_held(tmp_path: Path, body: str, complaint: str) -> None:
    status, said = check(tmp_path, body)
    assert status == 1
    assert complaint in said
