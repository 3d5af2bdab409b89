"""Zeroes gradients before the backward instead of after it, and once per step."""

from collections.abc import Iterator

import libcst as cst

from gradscope.recording.finding import Edit, Finding
from gradscope.rules.context import RuleContext
from gradscope.source_edits.moved_statements import moved_after, moved_before
from gradscope.source_edits.passes import loop_around
from gradscope.source_edits.source_file import Changes, SourceFile, only
from gradscope.source_edits.source_files import SourceFiles
from gradscope.source_edits.statements import line_before, statement_with


def fix(finding: Finding, context: RuleContext, files: SourceFiles) -> Iterator[tuple[Edit, ...]]:
    """Yield the edit that moves `zero_grad()` before the backward, or before its window.

    A step before the backward is moved behind it.
    """
    source = files.at(finding.location)
    if source is None or finding.location is None or not finding.related:
        return
    zeroing = statement_with(source, finding.location, "zero_grad")
    passing = statement_with(source, finding.related[0], "backward")
    if zeroing is None or passing is None:
        return
    if "steps_without_gradient" in dict(finding.evidence):
        step = statement_with(source, only(finding.related[1:]), "step")
        if step is not None and source.start(zeroing) < source.start(step) < source.start(passing):
            yield source.edits(moved_after(source, step, passing, changes_other=True))
        else:
            yield source.edits(moved_before(source, zeroing, passing))
    elif len(finding.related) == 2:
        step = statement_with(source, finding.related[1], "step")
        line = source.parent(zeroing)
        if step is not None and isinstance(line, cst.SimpleStatementLine) and _is_plain(line):
            moved = _before_window(source, zeroing, step)
            removed = source.edits({line: cst.RemovalSentinel.REMOVE}) if moved else ()
            yield removed + source.edits(moved) if moved else ()


def _is_plain(line: cst.SimpleStatementLine) -> bool:
    """Return whether a line has one statement and no comment."""
    above = any(one.comment for one in line.leading_lines)
    return len(line.body) == 1 and not above and line.trailing_whitespace.comment is None


def _before_window(
    source: SourceFile, zeroing: cst.BaseSmallStatement, step: cst.BaseSmallStatement
) -> Changes:
    """Return the change that zeroes before the loop over micro-batches, or behind the step in it.

    Empty if the step is neither outside of the loop nor in a condition of its own.
    """
    loop = loop_around(source, zeroing)
    if loop is None:
        return {}
    if loop is not loop_around(source, step):
        is_outside = not any(one is step for one in source.inside(loop, type(step)))
        is_window = isinstance(loop, cst.While) or not _draws_batches(source, loop)
        return line_before(loop, source.code(zeroing)) if is_outside and is_window else {}
    guard = source.around(step, cst.If, cst.For, cst.While)
    is_guarded = isinstance(guard, cst.If) and source.around(zeroing, cst.If) is not guard
    return source.inserted_after(step, zeroing) if is_guarded else {}


def _draws_batches(source: SourceFile, loop: cst.For) -> bool:
    """Return whether a loop goes over a whole loader: the step, too, may belong into it."""
    items = loop.iter
    if isinstance(items, cst.Call) and source.code(items.func) in ("enumerate", "tqdm"):
        items = items.args[0].value if items.args else items
    return source.code(items).rpartition(".")[2].lower().endswith(("loader", "batches", "dl"))
