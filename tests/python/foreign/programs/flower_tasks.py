"""A task that Flower sends: what it writes, a test reads."""

import os
from pathlib import Path

from celery import Celery

app = Celery("flower_tasks", broker=os.environ["BROKER"])


@app.task
def write(text: str) -> None:
    done = Path(os.environ["DONE"])
    unfinished = done.with_suffix(".unfinished")
    unfinished.write_text(text)
    unfinished.rename(done)
