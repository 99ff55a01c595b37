"""Blocks of Python in documents, and running them."""

import ast
import asyncio
import re
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]


def blocks(name: str) -> list[str]:
    return re.findall(r"^```python\n(.*?)^```", (ROOT / name).read_text(), re.M | re.S)


def run(block: str, names: dict[str, Any]) -> None:
    """In ``names``, which keeps what it defines.  ``await`` may stand outside of functions."""
    flags = ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
    code = compile(block, "<example>", "exec", flags=flags)
    result = eval(code, names)
    if result is not None:
        asyncio.run(asyncio.wait_for(result, 60))
