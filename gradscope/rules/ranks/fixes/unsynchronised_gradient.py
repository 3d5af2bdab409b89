"""Calls the DDP model itself."""

from collections.abc import Iterator

import libcst as cst

from gradscope.recording.finding import Edit, Finding
from gradscope.rules.context import RuleContext
from gradscope.source_edits.source_file import only
from gradscope.source_edits.source_files import SourceFiles


def fix(finding: Finding, context: RuleContext, files: SourceFiles) -> Iterator[tuple[Edit, ...]]:
    """Yield the edit of the only `model.module(…)` or `model.module.forward(…)` on the line."""
    source = files.at(finding.location)
    if source is None or finding.location is None:
        return
    found = only(
        pair
        for call in source.on_line(finding.location.line, cst.Call)
        if (pair := _wrapped(call.func)) is not None
    )
    if found is not None:
        function, wrapper = found
        yield source.edits({function: wrapper})


def _wrapped(
    function: cst.BaseExpression,
) -> tuple[cst.BaseExpression, cst.BaseExpression] | None:
    """Return what is called as `model.module` or `model.module.forward`, and `model`."""
    if not isinstance(function, cst.Attribute):
        return None
    inner = function.value if function.attr.value == "forward" else function
    is_module = isinstance(inner, cst.Attribute) and inner.attr.value == "module"
    return (function, inner.value) if is_module and isinstance(inner, cst.Attribute) else None
