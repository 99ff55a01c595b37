"""What the commands share: exit statuses, errors, and text that others chose on its way to a
terminal."""

import contextlib
import os
import sys
import unicodedata
from collections.abc import Iterator
from typing import Never

import click

from .errors import Error, NotFound, StoreCorrupt

__all__ = [
    "EXIT_DAMAGE",
    "EXIT_FAILED",
    "complain",
    "errors_told",
    "fail",
    "visible",
    "visible_json",
]

EXIT_DAMAGE = 1
EXIT_FAILED = 3

# Control characters (C0, DEL, C1), format characters (directions, zero width, tags), halves of
# surrogate pairs (bytes that were no UTF-8), line and paragraph separators.
_HIDDEN = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp"})


@contextlib.contextmanager
def errors_told() -> Iterator[None]:
    """What a store raises is one line on stderr and an exit status."""
    try:
        yield
    except StoreCorrupt as error:
        fail(str(error), EXIT_DAMAGE)
    except NotFound as error:
        fail(error.reply_text, EXIT_FAILED)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(EXIT_FAILED)
    except (Error, OSError, ValueError) as error:
        fail(str(error), EXIT_FAILED)


def complain(text: str) -> None:
    """One line on stderr."""
    click.echo(f"pyqstore: {visible(' '.join(text.split()))}", err=True)


def fail(text: str, status: int) -> Never:
    """One line on stderr, and the end."""
    complain(text)
    sys.exit(status)


def visible(text: str) -> str:
    """The text with what a terminal would obey, hide or reorder written as an escape.

    Whoever may name a queue must not move the cursor, set a title or turn letters around in the
    terminal of whoever looks at it.
    """
    if text.isascii() and text.isprintable():
        return text
    return "".join(
        _escape(ord(letter)) if unicodedata.category(letter) in _HIDDEN else letter
        for letter in text
    )


def visible_json(text: str) -> str:
    """The same for JSON that is ASCII: only DEL is left to escape.  It means what it meant."""
    return text.replace("\x7f", "\\u007f")


def _escape(number: int) -> str:
    if number < 0x100:
        return f"\\x{number:02x}"
    return f"\\u{number:04x}" if number < 0x10000 else f"\\U{number:08x}"
