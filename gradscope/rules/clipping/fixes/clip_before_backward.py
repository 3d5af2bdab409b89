"""Clips behind the backward."""

from collections.abc import Iterator
from itertools import product

from gradscope.recording.finding import Edit, Finding
from gradscope.rules.context import RuleContext
from gradscope.source_edits.callers import statements_calling, statements_that_only
from gradscope.source_edits.moved_statements import moved_after
from gradscope.source_edits.source_files import SourceFiles
from gradscope.source_edits.statements import call_named, clip_statement, statement_with


def fix(finding: Finding, context: RuleContext, files: SourceFiles) -> Iterator[tuple[Edit, ...]]:
    """Yield the edit that moves the clip behind the backward, or the block around it.

    A function that only clips counts as the line that calls it, as does one with the backward.
    """
    source = files.at(finding.location)
    if source is None or finding.location is None or not finding.related:
        return
    clipping = clip_statement(source, finding.location)
    passing = statement_with(source, finding.related[0], "backward")
    if clipping is None or passing is None:
        return
    if call_named(source, passing, ["scale"]) is not None:  # its gradients are scaled
        return
    pairs = product(statements_that_only(source, clipping), statements_calling(source, passing))
    moves = (moved_after(source, *pair) for pair in pairs)
    yield source.edits(next(filter(None, moves), {}))
