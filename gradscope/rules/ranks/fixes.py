"""Edits of how ranks synchronise gradients and divide the data."""

from collections.abc import Iterator

import libcst as cst

from gradscope.recording.finding import Finding
from gradscope.rules.fix import Edits, FixContext
from gradscope.source_edits.passes import call_on, last_pass, loop_around
from gradscope.source_edits.source_file import SourceFile, only
from gradscope.source_edits.statements import line_at_start, line_before
from gradscope.source_edits.variables import is_visible, value_of

_SWITCH = "require_backward_grad_sync"
"""Attribute that `no_sync()` switches, and that DDP reads in its forward."""


def needless_synchronisation(fix: FixContext) -> Iterator[Edits]:
    """Reduce the gradients of the last micro-batch only, by a switch where each one begins."""
    source, related = fix.source, fix.finding.related
    # Whoever uses the switch somewhere may set it for this loop, too, by a helper or a condition.
    if "no_sync" in source.text or _SWITCH in source.text:
        return
    model = only(_models(source, fix.line))
    backward, step = (
        only(one for site in related if (one := call_on(source, site, name)) is not None)
        for name in ("backward", "step")
    )
    if model is None or backward is None or step is None:
        return
    loop = loop_around(source, backward)
    # DDP reads the switch in its forward, so the forward must be in the loop whose passes the
    # switch follows.
    if not isinstance(loop, cst.For) or fix.line not in source.lines(loop.body):
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


def same_order_every_epoch(fix: FixContext) -> Iterator[Edits]:
    """Insert `sampler.set_epoch(epoch)` before the loop over batches."""
    source = fix.source
    loop = only(one for one in source.on_line(fix.line, cst.For))
    outer = None if loop is None else loop_around(source, loop)
    if loop is None or not isinstance(outer, cst.For) or source.parent(loop) is not outer.body:
        return
    sampler = _sampler(source, fix.finding, loop)
    if (
        len(fix.finding.related) != 1
        or sampler is None
        or not _is_counted(source, outer.iter)
        or not isinstance(outer.target, cst.Name)
        # A name with an underscore says that the number of the epoch is not meant to be used.
        or outer.target.value.startswith("_")
    ):
        return
    yield source.edits(line_before(loop, f"{sampler}.set_epoch({outer.target.value})"))


def _is_counted(source: SourceFile, items: cst.BaseExpression) -> bool:
    """Return whether a loop goes over numbers, with a progress bar or without."""
    if not isinstance(items, cst.Call):
        return False
    # `set_epoch` needs a number. A loop over anything but a range may give other values.
    name = source.code(items.func).rpartition(".")[2]
    is_wrapped = name == "tqdm" and bool(items.args)
    return name in ("range", "trange") or (is_wrapped and _is_counted(source, items.args[0].value))


def _sampler(source: SourceFile, finding: Finding, loop: cst.For) -> str | None:
    """Return how the loop can spell the sampler: by its variable, or by that of the loader."""
    site = finding.location
    made = [] if site is None or site.file != source.path else source.on_line(site.line, cst.Assign)
    assigned = only(made)
    target = None if assigned is None else only(assigned.targets)
    name = None if target is None else target.target
    if isinstance(name, cst.Name | cst.Attribute) and is_visible(source, name, loop.iter):
        return source.code(name)
    loader = loop.iter
    if isinstance(loader, cst.Call) and source.code(loader.func) in ("enumerate", "tqdm"):
        loader = loader.args[0].value
    is_named = isinstance(loader, cst.Name | cst.Attribute)
    # The sampler may be out of reach where the loop is; a `DataLoader` has it as an attribute.
    return f"{source.code(loader)}.sampler" if is_named else None


def unsynchronised_gradient(fix: FixContext) -> Iterator[Edits]:
    """Call the DDP model itself in the only `model.module(…)` or `model.module.forward(…)`."""
    source = fix.source
    found = only(
        pair
        for call in source.on_line(fix.line, cst.Call)
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
