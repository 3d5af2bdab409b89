"""GS201: parameters cut off from the loss."""

from collections.abc import Iterator
from typing import ClassVar

from gradscope.analysis.intent import Intent
from gradscope.analysis.model_parts import named
from gradscope.analysis.reach import (
    Reach,
    Stop,
)
from gradscope.frozen import dataclass
from gradscope.phrasing import counted
from gradscope.recording.finding import Finding, RelatedLocation, Severity
from gradscope.rules.context import RuleContext
from gradscope.rules.fix import FixRule
from gradscope.rules.helpers.cuts import Intent as Judged
from gradscope.rules.helpers.cuts import intent
from gradscope.rules.helpers.optimizers import superseded
from gradscope.rules.helpers.source_text import NO_INPUT, remedy_of_reentrant
from gradscope.rules.needs import Needs, has_backward
from gradscope.rules.rule import Rule

_COPIES = {
    "Parameter": "nn.Parameter(…)",
    "new_tensor": "new_tensor(…)",
    "tensor": "torch.tensor(…)",
}
"""Calls that copy a tensor's numbers, as written in code."""

_ASSIGNED_DATA = "data assignment"
_DETACHED_WRITE = "write into a detached tensor"
_DATA = {
    "data": ".data",
    _ASSIGNED_DATA: "an assignment to .data",
    _DETACHED_WRITE: f"a {_DETACHED_WRITE}",
}

_ARRAYS = frozenset({"__array__", "numpy"})


@dataclass(frozen=True, slots=True, kw_only=True)
class GradientCut(Rule):
    """Parameters get no gradient because a line cuts them off from the loss.

    What it finds:
        Parameters that require grad and that the forward uses, but that get no gradient in any
        step. Every path from them to the loss passes a cut: a `detach()`, `.data`, `item()`,
        `numpy()`, `tolist()`, `torch.tensor(…)` or `nn.Parameter(…)` of a result, a write into
        `.data`, a block under `no_grad`, or a reentrant checkpoint whose inputs need no gradient.

    Why it matters:
        Nothing fails. The other parameters learn and the loss falls, while the parameters before
        the cut stay at their initial values.

    How it is measured:
        A cut is a call of the forward that takes a tensor requiring grad and returns none that
        does. The rule follows its result towards the loss. It assigns each parameter without a
        gradient in every step to the first cut between it and the loss. Nothing is measured in
        numbers, so there is no threshold.

        The finding is an error unless the cut looks intended. It is milder for the target of a
        loss, a straight-through estimator, a copy of a module that learns, and whole modules under
        `no_grad` that no optimizer holds, that are in eval mode, that have a name such as
        `encode_no_grad` or `teacher`, or that the script itself updates as a running mean. It is a
        warning for a module on top of which only a head learns, and in a run a note if that module
        has loaded weights or such a name. If the parameters have an optimizer group of their own
        with a learning rate, they are meant to learn: the finding is an error and names the group.
        A head that learns does not excuse `torch.tensor(…)` of a result, a way through NumPy or a
        reentrant checkpoint, because these are no ways to freeze a module.

        Numbers that leave torch, as by `item()` or `numpy()`, cannot be followed to the loss. In a
        run it counts as certain that they reach it if an optimizer holds the parameters, no pass
        gives them a gradient, and the model's own forward reads them, or a function that makes
        tensors of arrays itself, and runs no backward.

    How to fix it:
        Pass the tensor itself on to the loss, and detach only the copy that is logged or stored. If
        the parameters should not learn, freeze them with `requires_grad_(False)`.

    Fix safety:
        Unsafe: the cut may be intended. The line's only `detach()`, `.data`, `item()`, `float(…)`,
        `nn.Parameter(…)`, `tolist()` or `torch.tensor(…)` is removed, and a `torch.tensor([…])` of
        results becomes `torch.stack([…])`. A block of `torch.no_grad()` around the line, or the
        decorator, is removed. If earlier statements need the detached tensor, such as the loss of a
        discriminator, the `detach()` moves to them. A checkpoint gets `use_reentrant=False`, and
        `autograd.grad` gets `create_graph=True`. A way through NumPy and back stays in torch if
        each function on it has a counterpart there, such as `np.exp`. No edit for a
        straight-through estimator, one of two losses that each detach a side, a block that repeats
        something, and other numbers that leave torch.

    When it may be wrong:
        If the parameters learn from a loss that was not part of this forward, such as the generator
        in the discriminator's step. If the model reads a number of a parameter for a log alone.

    Source:
        torch documentation, "Locally disabling gradient computation" and `Tensor.detach`.
        speechbrain issue 1396 and CoCa-pytorch issue 6: encoders that never trained.
    """

    code: ClassVar[str] = "GS201"
    name: ClassVar[str] = "gradient-cut"
    level: ClassVar[Severity] = "error"
    fix: ClassVar[FixRule | None] = FixRule(
        safety="unsafe", module="fixes.cuts", fixes_notes=False, keeps_parameters=True
    )
    judges_learning: ClassVar[bool] = True
    explains: ClassVar[tuple[str, ...]] = ("GS203", "GS204", "GS205", "GS306")
    needs: ClassVar[Needs] = (has_backward,)

    def check(self, context: RuleContext) -> Iterator[Finding]:
        """Yield a finding for every line that cuts parameters off."""
        reach = context.shared(Reach)
        for stop in reach.stops:
            # Choices and draws have remedies of their own, and so another rule.
            if stop.cut.kind != "non-differentiable" and not reach.draws(stop):
                yield self._finding(context, reach, stop)

    def _finding(self, context: RuleContext, reach: Reach, stop: Stop) -> Finding:
        judged = intent(reach, stop)
        return self.finding(
            context,
            message=_message(reach, stop, judged),
            remedy=_remedy(context, stop, judged.severity),
            site=stop.cut.site,
            related=stop_related(context, stop),
            severity=judged.severity,
            parameters=stop.parameters,
            evidence={
                "operation": None if stop.cut.kind == "no-grad" else stop.cut.operation,
                "parameters_cut": len(stop.parameters),
                "parameters_learning": len(reach.learning),
                "held_by_optimizer": reach.is_held(stop.parameters),
                "group_of_their_own": context.shared(Intent).is_given_a_rate(stop.parameters),
            },
            count=len(stop.parameters),
            caused_by=_causes(context, stop),
        )


def _causes(context: RuleContext, stop: Stop) -> tuple[str, ...]:
    """Return the rules whose findings explain that of a cut."""
    # The parameters that were made of these in their place are in no optimizer.
    if superseded(context).issuperset(stop.parameters):
        return ("GS205", "GS206")
    # In a run, another pass may use the same parameters without training them.
    return ("GS201", "GS202") if context.run and stop.runs_without_grad else ()


def stop_related(context: RuleContext, stop: Stop) -> Iterator[RelatedLocation | None]:
    """Yield the lines that take part: the last one with a gradient, and the detached part."""
    if stop.cut.last != stop.cut.site:
        yield context.related(stop.cut.last, "the last operation that still carried their gradient")
    if stop.cut.disabled not in (None, stop.cut.site):
        yield context.related(stop.cut.disabled, "gradients are disabled here")
    for part in stop.parts:
        yield context.related(part.site, f"{part.name or 'the model'} is made here")


def _message(reach: Reach, stop: Stop, judged: Judged) -> str:
    what = f"{named(stop.parts)} ({counted(len(stop.parameters), 'parameter')})"
    several = len(stop.parts) > 1
    gets = "get" if several else "gets"
    if stop.is_checkpoint:
        return f"{what} {gets} no gradient: {NO_INPUT}"
    if not reach.learning:
        return f"nothing learns: {_call(stop)} cuts {what} off from the loss"
    if stop.runs_without_grad:
        why = f"{'they run' if several else 'it runs'} under no_grad"
    else:
        why = f"{_call(stop)} cuts {'them' if several else 'it'} off from the loss"
    since = ""
    if reach.has_ceased(stop):
        since = (
            f" from about step {reach.indexed.judged:,} on" if reach.indexed.judged else " any more"
        )
    text = f"{what} {gets} no gradient{since}: {why}"
    holding = reach.indexed.shared(Intent).holding(stop.parameters)
    if judged.looks_like is not None:
        text = f"{text} (it looks {judged.looks_like})"
        if judged.severity == "note" or holding is None:
            return text
        return f"{text}, but {holding.text(len(stop.parameters), several=several)}"
    if holding is not None and holding.is_own:
        return f"{text}, although {holding.text(len(stop.parameters), several=several)}"
    return text if judged.although is None else f"{text} ({judged.although})"


def _call(stop: Stop) -> str:
    if stop.cut.operation in _COPIES | _DATA:
        return (_COPIES | _DATA)[stop.cut.operation]
    if stop.cut.kind == "no-grad":
        return "no_grad"
    return f"{stop.cut.operation}()"


def _remedy_of_copy(stop: Stop) -> str | None:
    """Return the remedy for a copy of numbers, None for any other cut."""
    if stop.cut.operation in ("copy_", _ASSIGNED_DATA):
        return (
            "compute with the tensor itself, as by `torch.nn.functional` or "
            "`torch.func.functional_call`: a parameter takes over its numbers only"
        )
    if stop.cut.operation == _DETACHED_WRITE:
        return (
            "compute a new tensor from both, as in `h = h * scale`: autograd does not see a write "
            "into `.data` or `detach()`, which share the memory of their tensor"
        )
    if stop.cut.operation == "deepcopy":
        return (
            "compute with the module itself; `torch.func.functional_call` runs it with changed "
            "weights and keeps their history"
        )
    if stop.cut.operation in _COPIES:
        return f"use the tensor as it is: {_call(stop)} makes a new leaf without history"
    return None


def _remedy(context: RuleContext, stop: Stop, severity: Severity) -> str:
    if stop.is_checkpoint:
        return remedy_of_reentrant(context.site(stop.cut.site))
    if severity == "note":
        return "if it should not learn, use requires_grad_(False), which also saves memory"
    copied = _remedy_of_copy(stop)
    if copied is not None:
        return copied
    if stop.cut.kind == "no-grad":
        return (
            "move it out of `no_grad`; or, if it should not learn, freeze it with "
            "`requires_grad_(False)` and remove it from the optimizer"
        )
    # Numbers outside of torch carry no gradient, whatever is done with them.
    if stop.cut.operation in _ARRAYS or stop.leaves_torch:
        return (
            "compute with torch instead of NumPy or Python numbers, or write a "
            "`torch.autograd.Function` with a backward"
        )
    if stop.cut.kind == "read":
        return (
            "compute with the tensor itself (`torch.stack` or `torch.cat` for several), and "
            "extract numbers for logging only"
        )
    return (
        f"pass the tensor on unchanged, and use {_call(stop)} only for the copy that is logged or "
        "stored"
    )
