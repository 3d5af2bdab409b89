"""GS206: optimizers that hold parameters which the model no longer has."""

from collections.abc import Iterator
from typing import ClassVar

from gradscope.analysis.model_parts import named
from gradscope.analysis.reach import (
    Reach,
)
from gradscope.frozen import dataclass
from gradscope.phrasing import counted
from gradscope.recording.evidence.training import OptimizerRecord, StaleTensor
from gradscope.recording.finding import Finding, Severity
from gradscope.recording.records import NodeRecord
from gradscope.rules.context import RuleContext
from gradscope.rules.fix import JUDGING_ONE_OPTIMIZER, FixRule
from gradscope.rules.helpers.optimizers import PROBE, Optimizers
from gradscope.rules.rule import Rule


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
