"""One document with every type of block, in each of the formats."""

import io
import math
import re
from html import unescape

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console
from rich.text import Text

from gradscope.analysis.folding import Span
from gradscope.report.document import (
    Column,
    Document,
    Fact,
    Facts,
    FindingBlock,
    Findings,
    Location,
    Note,
    Points,
    Section,
    Share,
    Strip,
    Strips,
    Table,
    TreeLabel,
    Word,
    more,
    plain,
    section,
)
from gradscope.report.formats.markdown import render_markdown
from gradscope.report.formats.notebook import render_notebook
from gradscope.report.formats.text import render_text
from gradscope.report.formats.text_lines import hanging
from gradscope.report.page import UNICODE, Page
from gradscope.report.snippets import CodeLine, Label, Snippet
from gradscope.report.strips import Scale, StripLayout

HOSTILE = "<b>|`x`*\x1b[1m"


def finding(**changes):
    label = Label(message="", is_cause=True)
    line = CodeLine(number=7, text="y = x.detach()", labels=(label,))
    values = {
        "severity": "error",
        "rule": "GS201",
        "name": "gradient-cut",
        "message": "nothing comes through",
        "location": "model.py:7",
        "source": "y = x.detach()",
        "snippets": (
            Snippet(file="model.py", line=7, function="forward", lines=(line,), message=""),
        ),
        "details": (Fact("measured", "share = 0.4"),),
        "remedy": "drop it",
    }
    return FindingBlock(**(values | changes))


def table():
    return Table(
        columns=(
            Column(title="module", kind="name"),
            Column(title="norm", kind="number"),
            Column(title="share", kind="number"),
            Column(kind="bar", rank=1),
            Column(title="range", kind="number"),
            Column(title="empty", kind="number"),
            Column(title="where", rank=2),
        ),
        rows=(
            (TreeLabel(level=0, name="", class_name="Net"), 1.5, Share(0.25), 0.25,
             Span(low=0.5, high=2.0), None, Location("net.py:3")),
            (TreeLabel(level=1, name="layers.[0-3]", class_name="Block", copies=4, calls=2),
             math.nan, Share(1.0), 1.0, None, None, Location("net.py:4")),
            (Word("head.weight", "name"), 12_345, Share(0.0), 0.0, None, None, ""),
        ),
    )  # fmt: skip


def document(width):
    cells = (1.0, None, math.nan, 8.0)
    strip = Strip(label="loss", cells=cells, scale=Scale.linear(cells), course="1.00 → 8.00")
    layout = StripLayout(label=10, strip=8, course=20, extreme=0)
    return Document(
        program="gradscope test",
        subject="net.py",
        header=(Facts((Fact("model", ("Net in ", Word("train", "strong"), " mode")),)),),
        blocks=(
            Findings(
                found=(finding(), finding(is_brief=True, standing="gone in B", rule="GS301")),
                verdict="Found 2 errors.",
                more=more(3, "more"),
            ),
            Section(title="Numbers", note="of the net", blocks=(table(), Points(("first `x`",)))),
            *section("Nothing", []),
            Section(blocks=(Strips(strips=(strip,), first=0, last=9, layout=layout),)),
            Note(Word("it was slow", "notable")),
        ),
        closing=(Note("all told", hint="Use --more."),),
    )


def text(build, width=100, encoding="utf-8"):
    stream = io.TextIOWrapper(io.BytesIO(), encoding=encoding)
    return render_text(build, Console(file=stream, width=width, color_system=None))


FORMATS = {
    "text": text,
    "markdown": lambda build: unescape(render_markdown(build)),
    "notebook": lambda build: unescape(render_notebook(build)),
}


@pytest.mark.parametrize("name", FORMATS)
def test_every_format_tells_every_fact(name):
    shown = FORMATS[name](document)
    for told in (
        "gradscope test", "net.py", "model", "Net in", "train", "GS201", "gradient-cut",
        "nothing comes through", "model.py:7", "GS301", "gone in B", "drop it", "Found 2 errors.",
        "… 3 more", "Numbers", "of the net", "module", "1.50", "25 %", "0.500…2.00",
        "layers.[0-3]", "Block", "share = 0.4", "measured", "nan", "head.weight",
        "12,345", "net.py:4", "it was slow", "all told", "1.00 → 8.00",
    ):  # fmt: skip
        assert told in shown, told
    assert "Nothing" not in shown and "empty" not in shown


def test_hints_are_for_terminals_alone():
    assert "Use --more." in text(document)
    assert not any("Use --more." in FORMATS[name](document) for name in ("markdown", "notebook"))


@pytest.mark.parametrize("width", [40, 60, 80, 140])
def test_text_keeps_to_the_width_and_drops_what_is_of_least_use(width):
    shown = text(document, width)
    assert max(map(len, shown.splitlines())) <= width
    assert ("net.py:4" in shown) == (width > 60)
    assert "12,345" in shown and "25 %" in shown


def test_ascii_has_other_signs_for_the_same():
    shown = text(document, encoding="ascii")
    assert shown.isascii()
    assert "1.00 -> 8.00" in shown and "x4" in shown and ".. 3 more" in shown


@pytest.mark.parametrize("name", FORMATS)
def test_nothing_of_the_user_acts(name):
    def hostile(width):
        row = (Word(HOSTILE, "name"), Word(HOSTILE, "strong"), Location(f"{HOSTILE}:1"))
        titles = (Column(title="a", kind="name"), Column(title="b"), Column(title="c"))
        return Document(
            program="gradscope",
            subject=HOSTILE,
            header=(Facts((Fact("model", HOSTILE),)), Note(HOSTILE), Points((HOSTILE,))),
            blocks=(
                Findings(found=(finding(message=HOSTILE, remedy=HOSTILE),), verdict=HOSTILE),
                Table(columns=titles, rows=(row,)),
            ),
            closing=(),
        )

    renderers = {"text": text, "markdown": render_markdown, "notebook": render_notebook}
    shown = renderers[name](hostile)
    assert "\x1b" not in shown
    if name != "text":
        assert "<b>|" not in shown
    if name == "markdown":
        rows = [line for line in shown.splitlines() if line.startswith("|")]
        assert {len(re.findall(r"\|", line)) for line in rows} == {4}


@given(st.text(st.characters(categories=("L", "N", "P", "Zs")), max_size=60), st.integers(8, 40))
def test_hanging_lines_lose_nothing_but_spaces(words, width):
    page = Page(width=width, encoding="utf-8", signs=UNICODE, root="")
    text = Text(page.spell(words), "bold")
    lines = hanging(text, width, indent=2, further=2).plain.split("\n")
    assert "".join("".join(lines).split()) == "".join(text.plain.split())
    assert all(len(line) <= width for line in lines)


def test_a_path_longer_than_a_line_is_broken_after_slashes():
    text = Text("the target has no optimizer (experiments/language/pretraining/stack.py)")
    assert hanging(text, 30, indent=2, further=2).plain.split("\n") == [
        "  the target has no optimizer",
        "    (experiments/language/",
        "    pretraining/stack.py)",
    ]


def test_plain_is_the_text_without_marks():
    assert plain(("a ", Word("b", "bad"), Word("c", "code"))) == "a bc"
