"""GS206 and GS215: parameters that an optimizer holds twice, or that the model no longer has."""

from collections.abc import Iterator, Sequence
from itertools import permutations
from typing import ClassVar

from gradscope.analysis.kept_steps import steps_of
from gradscope.analysis.model_parts import named
from gradscope.analysis.reach import (
    Reach,
)
from gradscope.analysis.windows import Series, Window, Windows
from gradscope.frozen import dataclass
from gradscope.phrasing import counted
from gradscope.recording.events import BackwardEvent, StepEvent, ZeroEvent
from gradscope.recording.evidence.training import OptimizerRecord, StaleTensor
from gradscope.recording.finding import Finding, Severity
from gradscope.recording.records import NodeRecord
from gradscope.rules.context import RuleContext
from gradscope.rules.fix import JUDGING_ONE_OPTIMIZER, FixRule
from gradscope.rules.helpers.optimizers import PROBE, Optimizers, positions
from gradscope.rules.rule import Rule

_NEAR = 64
"""Maximum number of events between the steps of two optimizers: schedulers, and steps of others."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StaleOptimizerParameter(Rule):
    """The optimizer holds tensors that the model no longer uses.

    What it finds:
        Parameters that an optimizer was given, and that the model has replaced since: by a new
        head, by weights loaded with `assign=True`, or because the model was built or copied again.

    Why it matters:
        The optimizer steps unused tensors, and never steps their replacements.

    How it is measured:
        A tensor of the optimizer counts if the model does not have it, the loss does not use it,
        and the model had it before: torch's registration hooks observed its replacement, or its
        position in the optimizer's list is that of a model parameter that the optimizer does not
        hold. It is an error if what has its place now gets a gradient and is in no optimizer, else
        a note. There is no threshold. It is an error, too, if the loss reaches nothing that the
        optimizer holds, and gives gradients to copies that were detached from it, as
        `torch.func.stack_module_state` makes them.

    How to fix it:
        Create the optimizer after the last change to the model.

    Fix safety:
        Unsafe: the change may be meant for later. The optimizer's line moves behind the last change
        to the model, or the change moves before it. If they are in different blocks of a function,
        the change is followed by `optimizer.add_param_group(…)`, and a note of this rule stays: the
        optimizer still holds what was replaced. Where training replaces the model, its values are
        loaded instead, or the line that makes the optimizer is repeated. For an ensemble, the
        optimizer gets the tensors that `stack_module_state` made.

    When it may be wrong:
        If the optimizer belongs to another model with the same structure.

    Source:
        microsoft/nni issue 4521, Megatron-LM issue 174 and pytorch issue 14467.
    """

    code: ClassVar[str] = "GS206"
    name: ClassVar[str] = "stale-optimizer-parameter"
    level: ClassVar[Severity] = "error"
    judges_learning: ClassVar[bool] = True
    explains: ClassVar[tuple[str, ...]] = ("GS201", "GS205", "GS306")
    fix: ClassVar[FixRule | None] = FixRule(
        safety="unsafe",
        module="fixes.optimizers",
        fixes_notes=False,
        leaves_note=True,
        ends=JUDGING_ONE_OPTIMIZER,
    )

    def skip_reason(self, context: RuleContext) -> str | None:
        """Return why this rule cannot judge the recording."""
        if context.probe_skip_reason(PROBE) is not None:
            return context.probe_skip_reason(PROBE)
        return None if Optimizers(context).records else Optimizers(context).missing

    def check(self, context: RuleContext) -> Iterator[Finding]:
        """Yield a finding for every line that replaced what an optimizer holds."""
        optimizers = Optimizers(context)
        for record in optimizers.records:
            groups: dict[int | None, list[StaleTensor]] = {}
            for tensor in record.stale:
                groups.setdefault(tensor.replaced, []).append(tensor)
            for line, tensors in groups.items():
                yield self._finding(optimizers, record, line, tensors)
        yield from self._copied(optimizers)

    def _copied(self, optimizers: Optimizers) -> Iterator[Finding]:
        """Yield a finding where the loss trains copies of all that an optimizer holds."""
        context = optimizers.context
        reach = context.shared(Reach)
        trained = [node for node in context.first.nodes if _is_trained_leaf(context, node)]
        for stop in reach.stops if trained and not reach.learning else ():
            # `detach().requires_grad_()` outside of a model starts a graph of its own, which the
            # cut does not join.
            if stop.cut.kind != "detach" or stop.cut.call is not None or stop.joins:
                continue
            for record in optimizers.with_parameters:
                if not set(stop.parameters) <= record.parameters:
                    continue
                of = counted(len(trained), "tensor")
                yield self.finding(
                    context,
                    message=(
                        f"{record.class_name} holds {named(stop.parts)} "
                        f"({counted(len(stop.parameters), 'parameter')}), but the loss trains {of} "
                        "copied from them, which no optimizer holds: no step changes them"
                    ),
                    remedy="give the optimizer the tensors that the forward uses",
                    site=stop.cut.site if record.site is None else record.site,
                    related=(context.related(stop.cut.site, "the copies are made here"),),
                    severity="error",
                    parameters=stop.parameters,
                    evidence={
                        "tensors_in_optimizer": len(record.parameters),
                        "tensors_trained": len(trained),
                    },
                    count=len(stop.parameters),
                )

    def _finding(
        self,
        optimizers: Optimizers,
        record: OptimizerRecord,
        line: int | None,
        tensors: list[StaleTensor],
    ) -> Finding:
        context = optimizers.context
        successors = [t.successor for t in tensors if t.successor is not None]
        stats = (context.parameter_stat(index) for index in successors)
        reached = {s.parameter for s in stats if s and s.reach in ("gradient", "zero")}
        lost = reached - optimizers.held
        made = None if not successors else context.recording.parameters[successors[0]].site
        # The line that replaces is to be moved; without it, the optimizer's.
        position = next((site for site in (line, record.site, made) if site is not None), None)
        related = [context.related(record.site, f"{record.class_name} is made here")]
        if line is None and made != position:
            related = [context.related(made, "the model's own are made here")]
        return self.finding(
            context,
            message=_message(record, tensors, stepped=not lost),
            remedy="create the optimizer after the last change to the model",
            site=position,
            related=related if position != record.site or line is None else (),
            severity="error" if lost else "note",
            parameters=successors,
            evidence={
                "tensors_stale": len(tensors),
                "tensors_in_optimizer": len(record.parameters) + len(record.stale),
                "parameters_never_stepped": len(lost),
            },
            count=len(tensors),
        )


def _is_trained_leaf(context: RuleContext, node: NodeRecord) -> bool:
    """Return whether a tensor outside the model gets a gradient."""
    if node.kind != "leaf":
        return False
    stat = context.tensor_stat(node.index, 0)
    return stat is not None and stat.gradient is not None and not stat.gradient.is_zero


def _message(record: OptimizerRecord, tensors: list[StaleTensor], *, stepped: bool) -> str:
    number = counted(len(tensors), "tensor")
    if not record.parameters:
        return (
            f"{record.class_name} holds {number} of another copy of the model and none of this "
            "one: its steps change nothing here"
        )
    names = list(dict.fromkeys(t.name for t in tensors if t.name is not None))
    listed = " and ".join(names) if len(names) < 3 else f"{names[0]} and {len(names) - 1} more"
    since = f"{record.class_name} still holds the {listed} that "
    since += "the model no longer has" if tensors[0].replaced is None else "this line replaces"
    return since if stepped else f"{since}: no step changes the current ones"


@dataclass(frozen=True, slots=True, kw_only=True)
class DuplicateInOptimizer(Rule):
    """A parameter is in an optimizer twice, or in two optimizers that both step it.

    What it finds:
        Parameters that one group of an optimizer lists more than once. Over several groups torch
        itself raises. In a training run, also parameters that two optimizers hold and step with the
        same gradient, such as Muon next to `AdamW(model.parameters())`.

    Why it matters:
        Each step updates them twice: twice the learning rate, and twice the momentum's and Adam's
        averages moved on. torch only warns of it.

    How it is measured:
        By identity, in the groups of every known optimizer. Two optimizers count if one steps after
        the other without a backward in between, so that the gradients of shared parameters are
        used twice, in `share` of the second one's steps, and if both learning rates are above zero.
        If the two hold exactly the same parameters, the finding is a warning.

    How to fix it:
        List every parameter once: `model.parameters()` yields tied weights once. Concatenated lists
        contain them several times. Give the second optimizer only the parameters that the first
        does not hold.

    Fix safety:
        Safe. A part whose whole is listed too is left out; otherwise the list becomes
        `list(dict.fromkeys(…))`. If two optimizers hold the parameters of a
        module, the one of the whole model leaves them out. No edit for parameter groups.

    When it may be wrong:
        If the second optimizer does not use the gradient, such as one that only projects or shrinks
        the weights. Optimizers that take turns, each with a backward of its own, and wrappers that
        step another one are not reported.

    Source:
        pytorch issue 40967.
        Measured: SGD with lr 0.1 and gradient 1 moves a parameter that is listed twice by 0.2, and
        so do two such optimizers.
    """

    code: ClassVar[str] = "GS215"
    name: ClassVar[str] = "duplicate-in-optimizer"
    level: ClassVar[Severity] = "error"
    judges_learning: ClassVar[bool] = True
    fix: ClassVar[FixRule | None] = FixRule(safety="safe", module="fixes.optimizers")

    share: float = 0.9
    """Share of an optimizer's steps, 0 to 1. Chosen: nearly all steps."""

    def skip_reason(self, context: RuleContext) -> str | None:
        """Return why this rule cannot judge the recording."""
        if context.probe_skip_reason(PROBE) is not None:
            return context.probe_skip_reason(PROBE)
        return None if Optimizers(context).records else Optimizers(context).missing

    def check(self, context: RuleContext) -> Iterator[Finding]:
        """Yield a finding for every optimizer that lists something twice."""
        for record in Optimizers(context).records:
            twice = sorted({index for group in record.groups for index in group.duplicates})
            if not twice:
                continue
            where = positions(context, twice)
            more = f" and {len(where) - 3} more" if len(where) > 3 else ""
            is_one = len(where) == 1
            yield self.finding(
                context,
                message=(
                    f"{', '.join(where[:3])}{more} {'is' if is_one else 'are'} in "
                    f"{record.class_name} more than once: each step updates "
                    f"{'it' if is_one else 'them'} repeatedly"
                ),
                remedy="list every parameter once",
                site=record.site,
                parameters=twice,
                evidence={
                    "parameters_listed_twice": len(twice),
                    "parameters_in_optimizer": len(record.parameters),
                },
                count=len(twice),
            )

    def in_run(self, context: RuleContext) -> Iterator[Finding]:
        """Yield a finding for every pair of optimizers that use the same gradients."""
        windows = context.shared(Windows)
        for first, second in permutations(windows.series, 2):
            # Either of the two may be the one that steps first.
            shared = sorted(set(first.parameters) & set(second.parameters))
            if not shared:
                continue
            both = [one for one in second.windows if _is_used_before(windows, first, one)]
            context.measured_share(
                self.code,
                "share_of_steps",
                steps_of(both),
                second.step_count,
                self.share,
                subject=f"{first.name} and {second.name}",
            )
            # One shared gradient may be where a script changes its optimizer.
            if steps_of(both) > 1 and steps_of(both) >= self.share * second.step_count:
                yield self._stepped_by_both(context, first, second, shared, steps_of(both))

    def _stepped_by_both(
        self,
        context: RuleContext,
        first: Series,
        second: Series,
        shared: Sequence[int],
        steps: int,
    ) -> Finding:
        where = positions(context, shared)
        more = f" and {len(where) - 3} more" if len(where) > 3 else ""
        is_same = set(first.parameters) == set(second.parameters)
        # The larger one was mostly given all parameters in place of its own.
        larger, other = sorted((first, second), key=lambda one: -len(one.parameters))
        return self.finding(
            context,
            message=(
                f"{', '.join(where[:3])}{more} {'is' if len(where) == 1 else 'are'} in both "
                f"{first.name} and {second.name}: {steps:,} of {second.step_count:,} steps of "
                f"{second.name} use gradients that {first.name} has used"
            ),
            remedy=f"leave them out of {larger.name} or of {other.name}",
            site=None if larger.record is None else larger.record.site,
            related=(
                context.related(
                    None if other.record is None else other.record.site, "the other optimizer"
                ),
                context.related(second.windows[0].step.site, "the second step"),
            ),
            severity="warning" if is_same else "error",
            parameters=shared,
            evidence={
                "parameters_in_both": len(shared),
                "steps_concerned": steps,
                "steps": second.step_count,
                "share_limit": self.share,
            },
            count=len(shared),
            step=second.windows[0].step.step,
        )


def _is_used_before(windows: Windows, first: Series, window: Window) -> bool:
    """Return whether a step uses gradients that another optimizer has used just before."""
    step = window.step
    if not step.stale or not step.lr:
        return False
    for event in reversed(windows.events[max(step.position - _NEAR, 0) : step.position]):
        # A backward in between gives the second step gradients of its own.
        if isinstance(event, BackwardEvent | ZeroEvent):
            return False
        if isinstance(event, StepEvent) and event.optimizer in first.optimizers:
            return bool(event.lr) and event.fresh > 0
    return False
