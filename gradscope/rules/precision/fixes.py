"""Edits of the scale of a loss."""

from collections.abc import Iterator

import libcst as cst

from gradscope.rules.fix import Edits, FixContext
from gradscope.source_edits.scalers import scaler_edits
from gradscope.source_edits.source_file import SourceFile, only


def float16_without_scaler(fix: FixContext) -> Iterator[Edits]:
    """Add a scaler, or else compute in bfloat16, which needs no scale."""
    source = fix.source
    yield scaler_edits(source, fix.site)
    chosen = only(
        one
        for one in source.on_line(fix.line, cst.Attribute)
        if source.qualified(one) in ("torch.float16", "torch.half")
    )
    if chosen is not None:
        yield source.edits({chosen.attr: cst.Name("bfloat16")})


_MARGINS = (16, 4, 1)
"""Parts of the largest scale that fits: later steps may have larger gradients."""


def gradient_underflow(fix: FixContext) -> Iterator[Edits]:
    """Raise the number that scales the loss, on its line or of the `GradScaler`.

    A loss without a scale gets a scaler.
    """
    source = fix.source
    scale, factor = fix.evidence["loss_scale"], fix.evidence["factor_that_fits"]
    if not isinstance(scale, float | int) or not isinstance(factor, float | int):
        return
    if scale == 1:
        yield scaler_edits(source, only(fix.finding.related))
    number = only(_numbers(source, fix.line, scale))
    if number is not None:
        for margin in _MARGINS:
            larger = cst.parse_expression(repr(float(scale * factor / margin)))
            yield source.edits({number: larger})


def _numbers(source: SourceFile, line: int, scale: float) -> Iterator[cst.Float | cst.Integer]:
    """Yield the literals of the scale."""
    # The scale may also be that of the scaler, which is made on another line.
    given = [
        one.value
        for one in source.all(cst.Arg)
        if one.keyword is not None and one.keyword.value == "init_scale"
    ]
    on_line = [*source.on_line(line, cst.Float), *source.on_line(line, cst.Integer)]
    for one in (*on_line, *given):
        if isinstance(one, cst.Float | cst.Integer) and one.evaluated_value == scale:
            yield one
