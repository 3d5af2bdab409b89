"""A document as an HTML fragment for notebooks, without scripts and style sheet."""

import math
from collections.abc import Container, Iterable, Iterator, Sequence
from html import escape

from gradscope.analysis.view import short_location
from gradscope.phrasing import printable
from gradscope.report.document import (
    Block,
    Build,
    Facts,
    FindingBlock,
    Findings,
    Inner,
    Line,
    Location,
    Note,
    Points,
    Section,
    Strip,
    Strips,
    Table,
    TreeLabel,
    Value,
    Word,
    plain,
)
from gradscope.report.formats.markdown import tree_text
from gradscope.report.number_format import figure, value_text
from gradscope.report.snippets import Snippet
from gradscope.report.strips import Scale

_WIDTH = 100
_COLOR, _BROKEN = "#3a87c8", "#d62728"
"""Colours that are readable on light and dark pages."""
_LEVELS = {"error": "#d62728", "warning": "#c98a00", "note": "#3a87c8"}
_LEAST = 0.06
"""Height of the lowest column of a chart."""
_BOLD = ("strong", "bad", "error", "warning", "note")


def render_notebook(build: Build) -> str:
    """Return the document as one element."""
    document = build(_WIDTH)
    title = f"<b>{_html(document.program)} {_html(document.subject)}</b>"
    blocks = (*document.header, *document.closing, *document.blocks)
    body = "".join(part for block in blocks for part in _block(block))
    return f"<div><p>{title}</p>{body}</div>"


def _html(text: str) -> str:
    return escape(printable(text))


def _block(block: Block) -> Iterator[str]:
    if not isinstance(block, Section):
        yield inner_html(block)
        return
    note = f" {_inline(block.note)}" if block.note else ""
    if block.title or note:
        yield f"<p><b>{_html(block.title)}</b>{note}</p>"
    for inner in block.blocks:
        yield inner_html(inner)


def inner_html(block: Inner) -> str:
    """Return a block as elements."""
    return "".join(_parts(block))


def _parts(block: Inner) -> Iterator[str]:
    match block:
        case Facts(rows):
            yield _rows((), ((_html(row.name), _inline(row.line)) for row in rows))
        case Note(line):
            yield f"<p>{_inline(line)}</p>"
        case Points(lines):
            items = "".join(f"<li>{_inline(line)}</li>" for line in lines)
            yield f"<ul>{items}</ul>" if len(lines) > 1 else f"<p>{_inline(lines[0])}</p>"
        case Findings():
            yield from _findings(block)
        case Strips():
            yield _strips(block)
        case Table():
            shown = [at for at in block.filled if "bar" not in block.columns[at].kind]
            titles = [block.columns[at].title for at in shown]
            numbers = {at for at, one in enumerate(shown) if block.columns[one].kind == "number"}
            yield _rows(titles, ([_cell(row[at]) for at in shown] for row in block.rows), numbers)


def _inline(line: Line) -> str:
    if isinstance(line, tuple):
        return "".join(map(_inline, line))
    if isinstance(line, str):
        return _prose(line)
    if line.mark in ("code", "name"):
        return f"<code>{_html(line.text)}</code>"
    return f"<b>{_prose(line.text)}</b>" if line.mark in _BOLD else _prose(line.text)


def _prose(text: str) -> str:
    """Return a sentence in which text between backticks is code."""
    parts = _html(text).split("`")
    if len(parts) % 2 == 0:  # the last backtick has no partner
        return _html(text)
    return "".join(f"<code>{part}</code>" if at % 2 else part for at, part in enumerate(parts))


def _findings(findings: Findings) -> Iterator[str]:
    if text := " ".join(filter(None, (findings.note, plain(findings.verdict)))):
        yield f"<p>{_html(text)}</p>"
    yield from map(_finding, findings.found)
    yield from (f"<p>{_inline(line)}</p>" for line in findings.more)


def _finding(one: FindingBlock) -> str:
    """Return a finding below its title, with a bar of its level's colour at the left."""
    standing = f"{_html(one.standing)}: " if one.standing else ""
    title = f"{standing}<b>{_html(f'{one.severity} {one.rule} {one.name}')}</b>"
    at = f" <code>{_html(one.location)}</code>" if one.location else ""
    code = "".join(_code(snippet) for snippet in one.snippets[:1] if snippet.lines)
    lines = [f"{_html(fact.name)}: {_inline(fact.line)}" for fact in one.details]
    lines.append(f"<b>help</b>: {_prose(one.remedy)}")
    return (
        f'<div style="border-left:4px solid {_LEVELS[one.severity]};padding:.1em .8em;'
        f'margin:.6em 0"><div>{title}{at}</div><div>{_prose(one.message)}</div>'
        f"{code}<div>{'<br>'.join(lines)}</div></div>"
    )


def _code(snippet: Snippet) -> str:
    """Return lines of code, with those that cause the finding in bold."""
    lines = []
    for line in snippet.lines:
        text = f"{line.number:>4}  {_html(line.text)}"
        lines.append(f"<b>{text}</b>" if any(one.is_cause for one in line.labels) else text)
    style = "margin:.4em 0;overflow-x:auto;white-space:pre;font-family:monospace"
    # Before Python 3.12, no backslash may stand in the braces of an f-string.
    return f'<pre style="{style}">{chr(10).join(lines)}</pre>'


def _strips(block: Strips) -> str:
    """Return a chart for each strip, as a picture that needs no script."""
    rows = [
        (_strip_label(one.label), _chart(one), _html(one.course), _html(one.extreme))
        for one in block.strips
    ]
    return _rows((), rows)


def _strip_label(label: Line | TreeLabel) -> str:
    return _cell(label) if isinstance(label, TreeLabel) else _html(plain(label))


def _chart(one: Strip) -> str:
    bars = "".join(_column(at, value, one.scale) for at, value in enumerate(one.cells))
    return (
        # Columns fill the width, however many there are.
        f'<svg viewBox="0 0 {max(len(one.cells), 1)} 1" preserveAspectRatio="none" width="320" '
        f'height="22" role="img" aria-label="{escape(one.course)}">{bars}</svg>'
    )


def _column(at: int, value: float | None, scale: Scale) -> str:
    if value is None:
        return ""
    is_finite = math.isfinite(value)
    height = _LEAST + (1 - _LEAST) * scale.share(value) if is_finite else 1.0
    color = _COLOR if is_finite else _BROKEN
    return (
        f'<rect x="{at}" y="{1 - height:.3f}" width="0.9" height="{height:.3f}" fill="{color}">'
        f"<title>{figure(value)}</title></rect>"
    )


def _rows(
    titles: Sequence[str], rows: Iterable[Sequence[str]], numbers: Container[int] = ()
) -> str:
    """Return a table of cells that are HTML already; columns of numbers are aligned at the right.

    Args:
        titles: Of the columns; empty for none.
        rows: The cells of each.
        numbers: Positions of the columns of numbers.
    """

    def cells(tag: str, texts: Sequence[str]) -> str:
        return "".join(
            f'<{tag} style="text-align:{"right" if at in numbers else "left"}'
            f'{";font-family:monospace" if tag == "td" else ""}">{text}</{tag}>'
            for at, text in enumerate(texts)
        )

    head = cells("th", [_html(title) for title in titles])
    body = "".join(f"<tr>{cells('td', row)}</tr>" for row in rows)
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def _cell(value: Value) -> str:
    match value:
        case str() | Word() | tuple():
            return _inline(value)
        case Location():
            return _html(short_location(value.location))
        case TreeLabel():
            name = _html(value.name or value.class_name)
            return f"{'&nbsp;&nbsp;' * value.level}{name}{_html(tree_text(value))}"
        case _:
            return value_text(value)
