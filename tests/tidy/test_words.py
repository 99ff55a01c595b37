"""Words that were given up for those of the field do not come back, and lines of C and Markdown
have 100 columns at most."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
COLUMNS = 100
DOCUMENTS = ["*.md", "docs/*.md", "docs/pictures/*.txt", "benchmarks/**/*.md", "examples/*.md"]
SOURCES = [
    "csrc/**/*.[ch]",
    "pyqstore/**/*.py",
    "pyqstore/**/*.p[xy][xdi]",
    "benchmarks/**/*.py",
]
TEXTS = [
    path
    for pattern in [*DOCUMENTS, *SOURCES]
    for path in sorted(ROOT.glob(pattern))
    if path.name != "CHANGELOG.md"
]
SPOKEN = r"\b(?:who(?:m)?ever|(?:some|any|no|every)body)\b"

# What was said: what to say, and where the word is right because it means something else.
WORDS = {
    r"\bdepartures?\b|\bsees? (?:it|them|messages) off\b": ("the removal list", ""),
    r"\bpromot(?:e[sd]?|ing|ion)\b": ("to share bodies", ""),
    r"\blevels\b": (
        "priorities",
        # Depths of tables, of directories, of a picture's lines.
        r"codec/field_table\.c|route/header_fields\.c|io/env_posix_fd\.c|bench/(?:drawing|plots)\.",
    ),
    r"\bPIECE_\w*ROWS|\bQSI_PIECE\w*|\bpieces? of (?:a|the) (?:batch|publish)": (
        "a pending record",
        "",
    ),
    r"\bbells?\b|\bparked\b|\bring_beside\b": ("to signal; armed", ""),
    r"\bbelongs? to nobody\b": ("the internal channel", ""),
    r"\bspoken for\b": ("pending in a transaction, reserved", ""),
    r"(?<!dead )(?<!dead-)\bletters?\b": (
        "a dead-lettered message",
        r"codec/(?:arrow_integers\.c|field_print\.h|field_table\.h)|pyqstore/(?:fields|terminal)\.py",
    ),
    r"_?shel(?:f|ves)": ("an LRU list", ""),
    r"\bdead dead\b": ("dead letters", ""),
    r"\bcuts? (?:a|the|its|message|journal) ?files?\b": ("to truncate", ""),
    r"\bleads none\b": ("never leads a commit", ""),
    r"\b(?:told|known|come|comes|expected) from outside\b": (
        "the checkpoint says",
        r"base/hash\.h",  # names that clients make up
    ),
    r"\bstir(?:s|red|ring)?\b": ("to wake", ""),
    r"\b(?:he|him|his)\b": ("it", ""),
    r"\bclass Works\b|\bworks = ": ("workloads", ""),
}


def prose(path: Path) -> str:
    """A text in one line: words that belong together may stand in two, and in a comment."""
    return re.sub(r"\s*\n\s*(?:\*|//|#)*\s*", " ", path.read_text())


def found(pattern: str, paths: list[Path], allowed: str = "") -> Iterator[str]:
    for path in paths:
        name = path.relative_to(ROOT).as_posix()
        if allowed and re.search(allowed, name):
            continue
        text = prose(path)
        for hit in re.finditer(pattern, text, re.I):
            yield f"{name}: ...{text[max(0, hit.start() - 30) : hit.end() + 30]}..."


@pytest.mark.parametrize("pattern", WORDS, ids=[instead for instead, _ in WORDS.values()])
def test_words_that_were_given_up_stay_away(pattern: str) -> None:
    instead, allowed = WORDS[pattern]
    assert len(TEXTS) > 400
    assert list(found(pattern, TEXTS, allowed)) == [], f"say: {instead}"
    if allowed:
        kept = [path for path in TEXTS if re.search(allowed, path.as_posix())]
        assert list(found(pattern, kept)), "nothing needs this allowance any more"


def test_documents_and_public_headers_name_who_does_something() -> None:
    """A thread, a call, a reader, a client: not somebody."""
    paths = [path for pattern in DOCUMENTS for path in sorted(ROOT.glob(pattern))]
    paths = [path for path in paths if path.name != "CHANGELOG.md"]
    paths += sorted((ROOT / "csrc/include/qstore").glob("*.h"))
    assert list(found(SPOKEN, paths)) == []


def test_a_word_is_found_across_lines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(globals(), "ROOT", tmp_path)
    (tmp_path / "a.c").write_text(
        "/* How much counts is told\n * from outside; dead\n * letters. */"
    )
    outside = next(pattern for pattern in WORDS if "outside" in pattern)
    letter = next(pattern for pattern in WORDS if "letters?" in pattern)
    assert len(list(found(outside, [tmp_path / "a.c"]))) == 1
    assert list(found(letter, [tmp_path / "a.c"])) == []


def test_lines_fit_in_100_columns() -> None:
    sources = ["csrc/**/*.[ch]", "tests/**/*.[ch]", "benchmarks/**/*.[ch]", "tests/**/*.md"]
    wide = []
    for path in {path for pattern in [*DOCUMENTS, *sources] for path in ROOT.glob(pattern)}:
        for number, line in enumerate(path.read_text().splitlines(), 1):
            if len(line) > COLUMNS and not line.lstrip().startswith(("|", "rows: ")):
                wide.append(f"{path.relative_to(ROOT)}:{number}: {len(line)} columns")
    assert sorted(wide) == []
