"""Switches a model to train mode where its training loop begins."""

from collections.abc import Iterator

import libcst as cst

from gradscope.recording.finding import Edit, Finding
from gradscope.rules.context import RuleContext
from gradscope.source_edits.passes import Loop, call_on, loop_around
from gradscope.source_edits.source_file import SourceFile
from gradscope.source_edits.source_files import SourceFiles
from gradscope.source_edits.statements import line_at_start, line_before
from gradscope.source_edits.variables import reads


def fix(finding: Finding, context: RuleContext, files: SourceFiles) -> Iterator[tuple[Edit, ...]]:
    """Yield the edit that inserts `model.train()` before the loop over batches, and into it.

    Only into it if the loop evaluates the model itself.
    """
    backward_site = finding.related[0] if finding.related else None
    source = files.at(backward_site)
    if source is None or len(finding.modules) != 1:
        return
    backward = call_on(source, backward_site, "backward")
    name = finding.modules[0]
    if backward is None or not all(part.isidentifier() for part in name.split(".")):
        return
    function, loop = source.around(backward, cst.FunctionDef), loop_around(source, backward)
    outer = source.module if function is None else function
    named = [one for one in (name, f"self.{name}") if any(True for _ in reads(source, outer, one))]
    if not named:
        return
    code = f"{named[0]}.train()"
    if loop is None:
        if function is not None:
            yield source.edits(line_at_start(source, function, code))
        return
    evaluates = finding.location is not None and _evaluates(source, loop, finding.location.line)
    if not evaluates:
        yield source.edits(line_before(loop, code))
    yield source.edits(line_at_start(source, loop, code))


def _evaluates(source: SourceFile, loop: Loop, line: int) -> bool:
    """Return whether a loop has the line that switches to eval mode, or calls its function."""
    if line in source.lines(loop.body):
        return True
    functions = list(source.all(cst.FunctionDef))
    names = {one.name.value for one in functions if line in source.lines(one)}
    count = 0
    while len(names) > count:
        count = len(names)
        names |= {one.name.value for one in functions if _called(source, one.body) & names}
    return bool(_called(source, loop.body) & names)


def _called(source: SourceFile, outer: cst.CSTNode) -> set[str]:
    """Return the last parts of the names of all functions that a block calls."""
    return {source.code(one.func).rpartition(".")[2] for one in source.inside(outer, cst.Call)}
