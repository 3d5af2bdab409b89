"""Raises the scale of the loss, or adds one."""

from collections.abc import Iterator

import libcst as cst

from gradscope.recording.finding import Edit, Finding
from gradscope.rules.context import RuleContext
from gradscope.source_edits.scalers import scaler_edits
from gradscope.source_edits.source_file import SourceFile, only
from gradscope.source_edits.source_files import SourceFiles

_MARGINS = (16, 4, 1)
"""Parts of the largest scale that fits: later steps may have larger gradients."""


def fix(finding: Finding, context: RuleContext, files: SourceFiles) -> Iterator[tuple[Edit, ...]]:
    """Yield the edits of the number that scales the loss, on its line or of the `GradScaler`.

    A loss without a scale gets a scaler.
    """
    del context
    source = files.at(finding.location)
    evidence = dict(finding.evidence)
    scale, factor = evidence["loss_scale"], evidence["factor_that_fits"]
    if source is None or finding.location is None:
        return
    if not isinstance(scale, float | int) or not isinstance(factor, float | int):
        return
    if scale == 1:
        yield scaler_edits(source, only(finding.related))
    number = only(_numbers(source, finding.location.line, scale))
    if number is not None:
        for margin in _MARGINS:
            larger = cst.parse_expression(repr(float(scale * factor / margin)))
            yield source.edits({number: larger})


def _numbers(source: SourceFile, line: int, scale: float) -> Iterator[cst.Float | cst.Integer]:
    """Yield the literals of the scale."""
    given = [
        one.value
        for one in source.all(cst.Arg)
        if one.keyword is not None and one.keyword.value == "init_scale"
    ]
    on_line = [*source.on_line(line, cst.Float), *source.on_line(line, cst.Integer)]
    for one in (*on_line, *given):
        if isinstance(one, cst.Float | cst.Integer) and one.evaluated_value == scale:
            yield one
