"""GS202: parameters that reach the loss only through operations without a derivative."""

from collections.abc import Iterator
from typing import ClassVar

from gradscope.analysis.model_parts import named
from gradscope.analysis.reach import (
    Reach,
    Stop,
)
from gradscope.frozen import dataclass
from gradscope.phrasing import counted
from gradscope.recording.cut_record import CutRecord
from gradscope.recording.finding import Finding, Severity
from gradscope.rules.context import RuleContext
from gradscope.rules.helpers.cuts import intent
from gradscope.rules.needs import Needs, has_backward
from gradscope.rules.reach.gradient_cut import stop_related
from gradscope.rules.rule import Rule

# `view(torch.int32)` reads the bits as integers.
_CASTS = frozenset(
    {"bool", "byte", "char", "int", "long", "short", "to", "type", "type_as", "view"}
)
_COMPARISONS = frozenset({"eq", "ge", "gt", "isclose", "le", "lt", "ne"})
_INDICES = frozenset(
    {"argmax", "argmin", "argsort", "bucketize", "nonzero", "searchsorted", "sort", "topk"}
)


@dataclass(frozen=True, slots=True, kw_only=True)
class NonDifferentiableOperation(Rule):
    """Parameters get no gradient because an operation before the loss has no derivative.

    What it finds:
        Parameters that require grad and that the forward uses, but that get no gradient in any
        step. Every path from them to the loss passes an operation without a derivative: `argmax`,
        the indices of `topk` or `sort`, a comparison, a cast to integers, or a draw by `sample()`,
        `multinomial` or `bernoulli`. If a straight-through estimator around the choice has its
        terms swapped, as in `(q - z).detach() + q`, the finding is at its line.

    Why it matters:
        A choice is constant almost everywhere, so autograd has no gradient to pass on, and reports
        nothing. The layers that make the choice stay at their initial values.

    How it is measured:
        As for gradient-cut: a cut is a call of the forward that takes a tensor requiring grad and
        returns none that does. The rule follows its result to the loss, and assigns each parameter
        without a gradient in every step to the first cut between it and the loss. There is no
        threshold. The finding is milder if the cut looks intended, such as a pseudo-label that only
        the loss uses, as its target.

    How to fix it:
        For a choice: weight by a softmax, use `gumbel_softmax(hard=True)` or a straight-through
        estimator, or train the choosing layers with a loss of their own. For a draw: use
        `rsample()`, or the log-probability of the sample times its reward.

    When it may be wrong:
        If the parameters learn from a loss that was not part of this forward. Operations whose
        derivative is zero everywhere, such as `round` and `sign`, are no cuts: zero-gradient finds
        them.

    Source:
        torch documentation, `torch.distributions`: score function and pathwise derivative.
        pytorch issue 1339: argmax between two parts of a model.
    """

    code: ClassVar[str] = "GS202"
    name: ClassVar[str] = "non-differentiable-operation"
    level: ClassVar[Severity] = "error"
    judges_learning: ClassVar[bool] = True
    explains: ClassVar[tuple[str, ...]] = ("GS203", "GS204", "GS205", "GS306")
    needs: ClassVar[Needs] = (has_backward,)

    def check(self, context: RuleContext) -> Iterator[Finding]:
        """Yield a finding for every line that has no derivative."""
        reach = context.shared(Reach)
        for stop in reach.stops:
            draws = reach.draws(stop)
            if draws or stop.cut.kind == "non-differentiable":
                yield self._finding(context, reach, stop, draws=draws)

    def _finding(self, context: RuleContext, reach: Reach, stop: Stop, *, draws: bool) -> Finding:
        judged = intent(reach, stop)
        what = f"{named(stop.parts)} ({counted(len(stop.parameters), 'parameter')})"
        why = "a draw from a distribution" if draws else _described(stop.cut.operation)
        them = "it" if len(stop.parts) == 1 else "them"
        gets = "gets" if len(stop.parts) == 1 else "get"
        text = f"{what} {gets} no gradient: the loss uses {them} only through {why}"
        estimator = None if draws else _estimator(context, stop)
        if estimator is not None:
            return self._of_estimator(context, reach, stop, estimator, judged.severity)
        return self.finding(
            context,
            message=f"{text} (it looks {judged.looks_like})" if judged.looks_like else text,
            remedy=_remedy(stop, judged.severity, draws=draws),
            site=stop.cut.site,
            related=stop_related(context, stop),
            severity=judged.severity,
            parameters=stop.parameters,
            evidence={
                "operation": stop.cut.operation,
                "parameters_cut": len(stop.parameters),
                "parameters_learning": len(reach.learning),
                "held_by_optimizer": reach.is_held(stop.parameters),
            },
            count=len(stop.parameters),
        )

    def _of_estimator(
        self,
        context: RuleContext,
        reach: Reach,
        stop: Stop,
        estimator: CutRecord,
        severity: Severity,
    ) -> Finding:
        what = f"{named(stop.parts)} ({counted(len(stop.parameters), 'parameter')})"
        return self.finding(
            context,
            message=(
                f"{what} {'gets' if len(stop.parts) == 1 else 'get'} no gradient: this line adds "
                "the detached difference of a straight-through estimator to what "
                f"{stop.cut.operation}() has chosen, which gets the gradient"
            ),
            remedy="add it to what came before the choice: `z + (chosen - z).detach()`",
            site=estimator.site,
            related=(context.related(stop.cut.site, "the choice"),),
            severity=severity,
            parameters=stop.parameters,
            evidence={
                "operation": stop.cut.operation,
                "parameters_cut": len(stop.parameters),
                "parameters_learning": len(reach.learning),
                "held_by_optimizer": reach.is_held(stop.parameters),
            },
            count=len(stop.parameters),
        )


def _estimator(context: RuleContext, stop: Stop) -> CutRecord | None:
    """Return the straight-through estimator by which parameters were meant to get a gradient."""
    wanted = set(stop.parameters)
    found = (
        one
        for one in context.recording.cuts
        if one.straight_through and one.operation == "detach" and wanted <= set(one.parameters)
    )
    return next(found, None)


def _described(operation: str) -> str:
    # Operators are recorded by their methods, as `__lt__`.
    if operation in _COMPARISONS or operation.strip("_") in _COMPARISONS:
        return f"a comparison ({operation}), which has no derivative"
    if operation in _CASTS:
        return f"a cast to integers ({operation}()), which has no derivative"
    if operation in _INDICES:
        return f"the indices of {operation}(), which have no derivative"
    return f"{operation}(), which has no derivative"


def _remedy(stop: Stop, severity: Severity, *, draws: bool) -> str:
    if severity == "note":
        return "if it should not learn, use requires_grad_(False), which also saves memory"
    if draws:
        return (
            "sample with `rsample()` if the distribution has it, otherwise train on the "
            "log-probability of the sample"
        )
    if stop.cut.operation in _CASTS:
        return "keep the tensor in floating point, or use a straight-through estimator"
    return (
        "use softmax or sigmoid weights instead of a choice, use `gumbel_softmax(hard=True)`, or "
        "give the choosing layers their own loss"
    )
