"""Steps the scheduler behind the optimizer."""

from collections.abc import Iterator

import libcst as cst

from gradscope.recording.finding import Edit, Finding
from gradscope.rules.context import RuleContext
from gradscope.source_edits.moved_statements import moved_after
from gradscope.source_edits.source_files import SourceFiles
from gradscope.source_edits.statements import call_named


def fix(finding: Finding, context: RuleContext, files: SourceFiles) -> Iterator[tuple[Edit, ...]]:
    """Yield the edit that moves the scheduler's step behind the optimizer's.

    Behind the block of the optimizer's step if that is another one.
    """
    del context
    source = files.at(finding.location)
    if source is None or finding.location is None or not finding.related:
        return
    sites = (finding.location, finding.related[0])
    lines = dict.fromkeys(one.line for one in sites if one.file == source.path)
    steps = [
        one
        for line in lines
        for one in source.statements(line)
        if isinstance(one, cst.BaseSmallStatement) and call_named(source, one, ["step"]) is not None
    ]
    if len(steps) == len(sites):
        yield source.edits(moved_after(source, *steps))
