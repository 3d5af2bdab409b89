"""Writes one page for each rule, and links the codes in the table of rules to these pages.

A page holds the manual as `gradscope rule CODE --output-format markdown` prints it. Sphinx reads
pages from files, so they are written to `docs/rules`, which git ignores.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console

from gradscope.report.rule_manual import render_manual
from gradscope.rules.catalogue import RULES
from gradscope.rules.manual import manual_of

if TYPE_CHECKING:
    # Tests read the pages without Sphinx.
    from sphinx.application import Sphinx

FOLDER = "rules"
TABLE_PAGE = "commands/rule"


def rule_pages() -> dict[str, str]:
    """Return the text of each page by the name of its file."""
    console = Console()
    return {
        f"{rule.code}.md": render_manual(manual_of(rule), "markdown", console) + "\n"
        for rule in RULES
    }


def write_pages(app: Sphinx) -> None:
    """Write the pages that are new or have changed, and remove those of rules that are gone."""
    folder = Path(app.srcdir) / FOLDER
    folder.mkdir(exist_ok=True)
    pages = rule_pages()
    for path in folder.glob("*.md"):
        if path.name not in pages:
            path.unlink()
    for name, text in pages.items():
        path = folder / name
        # An unchanged file keeps its time, and is not built again.
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            path.write_text(text, encoding="utf-8")


def link_codes(app: Sphinx, page: str, source: list[str]) -> None:
    """Turn the codes in the table of rules into links."""
    if page == TABLE_PAGE:
        source[0] = re.sub(
            r"^\| (GS\d{3}) \|", rf"| [\1](../{FOLDER}/\1.md) |", source[0], flags=re.MULTILINE
        )


def setup(app: Sphinx) -> dict[str, bool]:
    """Connect to the build."""
    app.connect("builder-inited", write_pages)
    app.connect("source-read", link_codes)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
