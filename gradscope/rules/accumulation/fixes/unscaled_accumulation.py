"""Divides the loss by the number of micro-batches."""

from collections.abc import Iterator

import libcst as cst

from gradscope.recording.finding import Edit, Finding
from gradscope.rules.context import RuleContext
from gradscope.source_edits.passes import call_on, loss_of, window_of
from gradscope.source_edits.source_file import SourceFile, in_place_of, operand
from gradscope.source_edits.source_files import SourceFiles


def fix(finding: Finding, context: RuleContext, files: SourceFiles) -> Iterator[tuple[Edit, ...]]:
    """Yield the edit that divides what `backward()` is called on."""
    source = files.at(finding.location)
    passes = dict(finding.evidence)["passes"]
    if source is None or not finding.related or not isinstance(passes, int):
        return
    backward = call_on(source, finding.location, "backward")
    step = call_on(source, finding.related[0], "step")
    if backward is None or step is None or not _is_only_backward(source, backward):
        return
    window = window_of(source, backward, step, passes)
    loss = loss_of(backward)
    if window is not None and loss is not None:
        divided = cst.BinaryOperation(left=operand(loss), operator=cst.Divide(), right=window)
        yield source.edits({loss: in_place_of(source, loss, divided)})


def _is_only_backward(source: SourceFile, backward: cst.Call) -> bool:
    function = source.around(backward, cst.FunctionDef)
    outer = source.module if function is None else function
    return not any(
        call is not backward
        for call in source.inside(outer, cst.Call)
        if isinstance(call.func, cst.Attribute) and call.func.attr.value == "backward"
    )
