"""Finds statements by their lines, and inserts lines beside them."""

from collections.abc import Iterable

import libcst as cst

from gradscope.recording.finding import RelatedLocation
from gradscope.recording.records import Site
from gradscope.source_edits.source_file import Changes, SourceFile, only

_CLIPS = ("clip_grad_norm_", "clip_grad_value_")


def statement_on(source: SourceFile, line: int) -> cst.SimpleStatementLine | None:
    """Return the statement of a line; None if there are several, or it shares its line."""
    statement = only(source.statements(line))
    parent = None if statement is None else source.parent(statement)
    is_alone = isinstance(parent, cst.SimpleStatementLine) and len(parent.body) == 1
    return parent if is_alone and isinstance(parent, cst.SimpleStatementLine) else None


def statement_with(
    source: SourceFile, site: Site | RelatedLocation | None, method: str
) -> cst.BaseSmallStatement | None:
    """Return the only statement on a line that calls a method once; None if it is unclear."""
    if site is None or site.file != source.path:
        return None
    return only(
        one
        for one in source.statements(site.line)
        if isinstance(one, cst.BaseSmallStatement) and call_named(source, one, [method]) is not None
    )


def clip_statement(
    source: SourceFile, site: Site | RelatedLocation | None
) -> cst.BaseSmallStatement | None:
    """Return the only statement on a line that clips gradients; None if it is unclear.

    A line of one statement may call a function that clips.
    """
    if site is None:
        return None
    found = [one for one in source.statements(site.line) if isinstance(one, cst.BaseSmallStatement)]
    return only(found if len(found) == 1 else [one for one in found if _clips(source, one)])


def _clips(source: SourceFile, statement: cst.CSTNode) -> bool:
    return any(is_clip(source, call) for call in source.inside(statement, cst.Call))


def is_clip(source: SourceFile, call: cst.Call) -> bool:
    """Return whether a call is one of torch's clips, by its name or that of its import."""
    name = call.func.attr if isinstance(call.func, cst.Attribute) else call.func
    written = name.value if isinstance(name, cst.Name) else ""
    return written in _CLIPS or source.qualified(call.func).rpartition(".")[2] in _CLIPS


def call_named(source: SourceFile, statement: cst.CSTNode, names: Iterable[str]) -> cst.Call | None:
    """Return the only call of a method of some names in a statement; None otherwise."""
    wanted = set(names)
    return only(
        call
        for call in source.inside(statement, cst.Call)
        if isinstance(call.func, cst.Attribute) and call.func.attr.value in wanted
    )


def line_before(block: cst.BaseCompoundStatement, code: str) -> Changes:
    """Return the change that inserts a line before a compound statement."""
    # Blank lines stay above the new line, comments above the block that they are about.
    blank = [line for line in block.leading_lines if line.comment is None]
    comments = [line for line in block.leading_lines if line.comment is not None]
    added = line_of(code).with_changes(leading_lines=blank)
    return {block: cst.FlattenSentinel([added, block.with_changes(leading_lines=comments)])}


def line_at_start(
    source: SourceFile, block: cst.For | cst.While | cst.FunctionDef, code: str
) -> Changes:
    """Return the change that inserts a line at the start of a block, behind a docstring."""
    body = block.body
    if isinstance(body, cst.SimpleStatementSuite):
        return source.inserted_before(body.body[0], line_of(code).body[0])
    first = body.body[0]
    if isinstance(block, cst.FunctionDef) and block.get_docstring() is not None:
        if len(body.body) == 1:
            return {}
        first = body.body[1]
    if not isinstance(first, cst.SimpleStatementLine | cst.BaseCompoundStatement):
        return {}
    both: list[cst.BaseStatement] = [line_of(code), first]
    return {first: cst.FlattenSentinel(both)}


def line_of(code: str) -> cst.SimpleStatementLine:
    """Return the line of a statement given as code."""
    line = cst.parse_statement(code)
    assert isinstance(line, cst.SimpleStatementLine)
    return line
