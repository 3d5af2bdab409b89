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
    """Yield the edit that inserts `model.train()` before the loop over batches, or into it.

    Into it if the loop is the only one around the backward, or evaluates the model itself.
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
    if evaluates or loop_around(source, loop) is None:
        yield source.edits(line_at_start(source, loop, code))
    else:
        yield source.edits(line_before(loop, code))


def _evaluates(source: SourceFile, loop: Loop, line: int) -> bool:
    """Return whether a loop has the line that switches to eval mode, or calls its function."""
    if line in source.lines(loop.body):
        return True
    functions = [one for one in source.all(cst.FunctionDef) if line in source.lines(one)]
    names = {one.name.value for one in functions}
    called = (one.func for one in source.inside(loop.body, cst.Call))
    return any(source.code(one).rpartition(".")[2] in names for one in called)
