"""Text that others chose, on its way to a terminal."""

import unicodedata

__all__ = ["visible", "visible_json"]

# Control characters (C0, DEL, C1), format characters (directions, zero width, tags), halves of
# surrogate pairs (bytes that were no UTF-8), line and paragraph separators.
_HIDDEN = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp"})


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
