"""Edits of the scale of a loss."""

from collections.abc import Iterator
from itertools import chain, count

import libcst as cst

from gradscope.recording.finding import Edit, RelatedLocation
from gradscope.recording.records import Site
from gradscope.rules.fix import Edits, FixContext
from gradscope.source_edits.passes import Loop, loop_around
from gradscope.source_edits.source_file import Changes, Replacement, SourceFile, only
from gradscope.source_edits.statements import is_clip, line_before, line_of
from gradscope.source_edits.variables import is_visible, spelled, value_of

_AUTOCASTS = ("torch.autocast", "torch.amp.autocast", "torch.amp.autocast_mode.autocast")
_OF_CUDA = ("torch.cuda.amp.autocast", "torch.cuda.amp.autocast_mode.autocast")
_MARGINS = (16, 4, 1)
"""Parts of the largest scale that fits: later steps may have larger gradients."""


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


def scaler_edits(source: SourceFile, site: Site | RelatedLocation | None) -> tuple[Edit, ...]:
    """Return the edits that scale the loss of a file's only training loop.

    Args:
        source: The file.
        site: The line of the autocast.

    Returns:
        Empty if the file has several backward passes or steps, reads gradients, or has a scaler,
        and if the device of the autocast is unclear.
    """
    device = None if site is None or site.file != source.path else _device(source, site.line)
    backward, step = _backward(source), _step(source)
    scaler = spelled(source, "torch.amp.GradScaler")
    if device is None or backward is None or step is None or scaler is None:
        return ()
    loop = _outermost_loop(source, backward)
    if loop is None or loop is not _outermost_loop(source, step) or _reads_gradients(source):
        return ()
    if not isinstance(device, cst.SimpleString) and not is_visible(source, device, loop):
        return ()
    clips = [one for one in source.inside(loop, cst.Call) if is_clip(source, one)]
    clip = source.statement_of(clips[0]) if clips else None
    if len(clips) > 1 or (clips and clip is None):
        return ()
    optimizer, name = source.code(_owner(step)), _free_name(source)
    made = line_before(loop, f"{name} = {scaler}({source.code(device)})")
    statement = source.statement_of(step)
    assert statement is not None
    unscaled: Changes = (
        source.inserted_before(clip, line_of(f"{name}.unscale_({optimizer})").body[0])
        if clip is not None
        else {}
    )
    updated = source.inserted_after(statement, line_of(f"{name}.update()").body[0])
    scaled: dict[cst.CSTNode, Replacement] = {
        _owner(backward): _call(f"{name}.scale", _owner(backward)),
        step: _call(f"{name}.step", _owner(step)),
    }
    return tuple(
        edit for change in (made, scaled, unscaled, updated) for edit in source.edits(change)
    )


def _free_name(source: SourceFile) -> str:
    """Return a name for the scaler that the file does not use."""
    used = {one.value for one in source.all(cst.Name)}
    names = chain(("scaler", "grad_scaler"), (f"scaler{number}" for number in count(2)))
    return next(name for name in names if name not in used)


def _device(source: SourceFile, line: int) -> cst.BaseExpression | None:
    """Return the device of the only autocast of a line."""
    names = (*_AUTOCASTS, *_OF_CUDA)
    call = only(
        one for one in source.on_line(line, cst.Call) if source.qualified(one.func) in names
    )
    if call is None:
        return None
    if source.qualified(call.func) in _OF_CUDA:
        return cst.SimpleString('"cuda"')
    for number, one in enumerate(call.args):
        is_first = number == 0 and one.keyword is None and not one.star
        if is_first or (one.keyword is not None and one.keyword.value == "device_type"):
            return one.value
    return None


def _backward(source: SourceFile) -> cst.Call | None:
    """Return the only backward of a file; None if it is no statement, or has arguments."""
    return _plain(source, only(_calls(source, "backward")))


def _step(source: SourceFile) -> cst.Call | None:
    """Return the only step of an optimizer; None if it is no statement, or has a closure."""
    steps = list(_calls(source, "step"))
    of_torch = [one for one in steps if _is_optimizer(source, _owner(one))]
    # The optimizer may be made in another file.
    return _plain(source, only(of_torch or steps))


def _calls(source: SourceFile, method: str) -> Iterator[cst.Call]:
    """Yield the calls of a method."""
    for call in source.all(cst.Call):
        if isinstance(call.func, cst.Attribute) and call.func.attr.value == method:
            yield call


def _plain(source: SourceFile, call: cst.Call | None) -> cst.Call | None:
    """Return a call if it is a statement without arguments."""
    is_plain = call is not None and not call.args and isinstance(source.parent(call), cst.Expr)
    return call if is_plain else None


def _is_optimizer(source: SourceFile, name: cst.BaseExpression) -> bool:
    value = value_of(source, name)
    made = source.qualified(value.func) if isinstance(value, cst.Call) else ""
    return made.startswith("torch.optim.") and "lr_scheduler" not in made


def _owner(call: cst.Call) -> cst.BaseExpression:
    assert isinstance(call.func, cst.Attribute)
    return call.func.value


def _call(function: str, argument: cst.BaseExpression) -> cst.Call:
    # The parentheses of the call are enough.
    bare = argument.with_changes(lpar=[], rpar=[])
    return cst.Call(func=cst.parse_expression(function), args=[cst.Arg(bare)])


def _outermost_loop(source: SourceFile, node: cst.CSTNode) -> Loop | None:
    """Return the outermost loop around a node in its function."""
    loop = loop_around(source, node)
    outer = None if loop is None else loop_around(source, loop)
    while outer is not None:
        loop, outer = outer, loop_around(source, outer)
    return loop


def _reads_gradients(source: SourceFile) -> bool:
    """Return whether a file reads gradients itself, or has a scaler."""
    return "GradScaler" in source.text or any(
        one.attr.value == "grad" for one in source.all(cst.Attribute)
    )
