"""Calls the DDP model itself."""

from collections.abc import Iterator

import libcst as cst

from gradscope.recording.finding import Finding
from gradscope.recording.fix import Edit
from gradscope.rules.context import RuleContext
from gradscope.source_edits.source_file import only
from gradscope.source_edits.source_files import SourceFiles


def fix(finding: Finding, context: RuleContext, files: SourceFiles) -> Iterator[tuple[Edit, ...]]:
    """Yield the edit of the only `model.module(…)` on the line of the forward."""
    source = files.at(finding.location)
    if source is None or finding.location is None:
        return
    around = only(
        call.func
        for call in source.on_line(finding.location.line, cst.Call)
        if isinstance(call.func, cst.Attribute) and call.func.attr.value == "module"
    )
    if around is not None:
        yield source.edits({around: around.value})
