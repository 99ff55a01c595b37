"""A hook of mkdocs: the pages of the site are the documents where they are in the tree.

A page has the path of its document, so links between documents hold on the forge and in the site.
A page that would load anything from another host fails the build.
"""

import re
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files

ROOT = Path(__file__).resolve().parent.parent
# Documents, and what they show or link to.
PATTERNS = [
    "*.md",
    "docs/*.md",
    "docs/reference/*.md",
    "docs/pictures/*.[sp][vn]g",
    "benchmarks/*.md",
    "benchmarks/results/*.md",
    "benchmarks/results/*.json",
    "benchmarks/results/*.png",
    "examples/**/*",
]


def documents() -> Iterator[str]:
    """Paths from the root of the tree, with slashes."""
    for pattern in PATTERNS:
        for path in sorted(ROOT.glob(pattern)):
            if path.is_file() and "__pycache__" not in path.parts:
                yield path.relative_to(ROOT).as_posix()


def listed(entry: object) -> Iterator[str]:
    """Paths in the navigation, or in a part of it."""
    if isinstance(entry, str):
        yield entry
    elif isinstance(entry, dict):
        for part in entry.values():
            yield from listed(part)
    elif isinstance(entry, list):
        for part in entry:
            yield from listed(part)


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Called by mkdocs first.  A document that the navigation leaves out comes last."""
    assert config.nav is not None
    known = set(listed(config.nav))
    rest = [path for path in documents() if path.endswith(".md") and path not in known]
    if rest:
        config.nav.append({"More": rest})
    return config


def on_files(files: Files, *, config: MkDocsConfig) -> Files:
    """Called by mkdocs with the files of ``docs_dir``."""
    for path in documents():
        files.append(
            File(path, str(ROOT), config.site_dir, use_directory_urls=config.use_directory_urls)
        )
    return files


def on_page_content(html: str, **_: object) -> str:
    """Called by mkdocs with a page made of Markdown: marks of reStructuredText that docstrings
    have become links (to what has a page; else text) and colons."""
    html = re.sub(
        r":(?:class|meth|func|attr|mod):<code>~?([\w.]+)</code>",
        r'<autoref identifier="\1" optional><code>\1</code></autoref>',
        html,
    )
    return html.replace("<p>::</p>", "").replace("::</p>", ":</p>")


class Loads(HTMLParser):
    """What a browser loads with a page, as far as it comes from another host."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        named = dict(attrs)
        loaded = [named.get("src"), named.get("srcset"), named.get("poster"), named.get("data")]
        if tag == "link" and named.get("rel") not in {"canonical", "prev", "next"}:
            loaded.append(named.get("href"))
        self.found += [place for place in loaded if place and re.match(r"(\w+:)?//", place)]


def loads(text: str, suffix: str) -> list[str]:
    """Places on other hosts that a page or a style sheet loads."""
    if suffix == ".css":
        return re.findall(r"(?:url\(|@import)\s*[\"']?((?:https?:)?//[^)\"']+)", text)
    page = Loads()
    page.feed(text)
    return page.found


def on_post_build(*, config: MkDocsConfig) -> None:
    """Called by mkdocs when all is written."""
    for path in Path(config.site_dir).rglob("*"):
        if path.suffix in {".html", ".css"}:
            found = loads(path.read_text(encoding="utf-8"), path.suffix)
            if found:
                raise PluginError(f"{path} loads from another host: {', '.join(found)}")
