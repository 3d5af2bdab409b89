"""Reduces the gradients of the last micro-batch only."""

from collections.abc import Iterator

import libcst as cst

from gradscope.recording.finding import Edit, Finding
from gradscope.rules.context import RuleContext
from gradscope.source_edits.passes import call_on, last_pass, loop_around
from gradscope.source_edits.source_file import SourceFile, only
from gradscope.source_edits.source_files import SourceFiles
from gradscope.source_edits.statements import line_at_start
from gradscope.source_edits.variables import value_of

_SWITCH = "require_backward_grad_sync"
"""Attribute that `no_sync()` switches, and that DDP reads in its forward."""


def fix(finding: Finding, context: RuleContext, files: SourceFiles) -> Iterator[tuple[Edit, ...]]:
    """Yield the edit that switches the synchronisation where each micro-batch begins."""
    del context
    source = files.at(finding.location)
    if source is None or finding.location is None:
        return
    if "no_sync" in source.text or _SWITCH in source.text:
        return
    model = only(_models(source, finding.location.line))
    backward = only(
        one for site in finding.related if (one := call_on(source, site, "backward")) is not None
    )
    step = only(
        one for site in finding.related if (one := call_on(source, site, "step")) is not None
    )
    if model is None or backward is None or step is None:
        return
    loop = loop_around(source, backward)
    if not isinstance(loop, cst.For) or finding.location.line not in source.lines(loop.body):
        return
    last = last_pass(source, loop, step)
    if last is not None:
        yield source.edits(line_at_start(source, loop, f"{model}.{_SWITCH} = {last}"))


def _models(source: SourceFile, line: int) -> Iterator[str]:
    """Yield the variables of wrapped models that a line calls."""
    for call in source.on_line(line, cst.Call):
        value = value_of(source, call.func) if isinstance(call.func, cst.Name) else None
        if isinstance(value, cst.Call):
            name = source.qualified(value.func)
            if name.startswith("torch.nn.") and name.endswith(".DistributedDataParallel"):
                yield source.code(call.func)
