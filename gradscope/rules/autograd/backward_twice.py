"""GS502: backward through a part of the graph that is used up."""

from collections.abc import Iterator
from typing import ClassVar

from gradscope.analysis.recording_index import ended_by
from gradscope.frozen import dataclass
from gradscope.recording.evidence.failures import AutogradErrorRecord
from gradscope.recording.finding import Finding, Severity
from gradscope.rules.context import RuleContext
from gradscope.rules.fix import FixRule
from gradscope.rules.helpers.autograd_errors import (
    errors_of,
    evidence_of,
    operation_of,
    related_to,
    site_of,
)
from gradscope.rules.rule import Rule


@dataclass(frozen=True, slots=True, kw_only=True)
class BackwardTwice(Rule):
    """Backward goes a second time through a part of the graph.

    What it finds:
        Two backward calls over one graph without `retain_graph`. Also tensors that are kept with
        their history from one step to the next, such as a hidden state or a cached product of
        weights: the next step's backward then reaches the graph of the previous step.

    Why it matters:
        `backward()` raises "Trying to backward through the graph a second time".
        `retain_graph=True` often only hides this: memory and time grow from step to step.

    How it is measured:
        The operation whose backward raised is known. Autograd numbers its operations in order,
        which tells in which forward the operation was made. A second step is tried on a snapshot of
        the model, on the same batch. There is no threshold.

    How to fix it:
        Call backward once on the sum of the losses. Detach what is carried over to the next step,
        as `self.hidden = hidden.detach()`, or make it anew in every forward.

    Fix safety:
        Safe. The state is detached where it is stored for the next step, if one line stores it.
        The first of two `backward()` over one graph gets `retain_graph=True`, if both are in one
        function, or the second is of the loss that the function returns, and no step is between
        them.

    When it may be wrong:
        A training loop may reset or detach between its steps what the second step here reused. If
        only such a further step fails, the finding is a note if the model has a method such as
        `reset_hidden`. It is an error if an attribute of the model or a global keeps the tensor,
        and no code in the forward's files, packages and folders can release it. Otherwise it is a
        warning. If a step of `--steps` failed, it is always an error.

    Source:
        torch documentation, "Autograd mechanics": "Saved tensors"; `torch.Tensor.backward`.
    """

    code: ClassVar[str] = "GS502"
    name: ClassVar[str] = "backward-twice"
    level: ClassVar[Severity] = "error"
    fix: ClassVar[FixRule | None] = FixRule(safety="safe")

    def check(self, context: RuleContext) -> Iterator[Finding]:
        """Yield a finding for a part that backward went through before."""
        for record in errors_of(context, "freed"):
            site = site_of(record, "forward", "reuse", "call")
            yield self.finding(
                context,
                message=_message(context, record),
                remedy=_remedy(record),
                site=site,
                related=related_to(
                    context,
                    record,
                    site,
                    reuse="the new graph uses it here",
                    freed="this backward went through it first",
                    call="this backward reaches it again",
                ),
                severity=_severity(context, record),
                evidence=evidence_of(record),
                step=record.step,
            )


def _severity(context: RuleContext, record: AutogradErrorRecord) -> Severity:
    # The first step fails in every training. A later one is tried by gradscope on the same batch,
    # without what a training loop may do between its steps.
    if not record.step or ended_by(context.recording) is record:
        return "error"
    if record.reset is not None:
        return "note"
    return "error" if _is_kept_for_good(record) else "warning"


def _is_kept_for_good(record: AutogradErrorRecord) -> bool:
    """Return whether no visible code releases the carried history."""
    return bool(record.carried) and not any(one.is_tended for one in record.carried)


def _message(context: RuleContext, record: AutogradErrorRecord) -> str:
    operation = operation_of(context, record) or "an operation"
    if record.location("freed") is not None:
        return f"backward goes a second time through {operation}, whose graph is already freed"
    if record.step or record.location("reuse") is not None:
        which = f"step {record.step + 1}'s backward" if record.step else "backward"
        what = next((one.name for one in record.carried), "a tensor")
        return (
            f"{which} reaches into the graph of an earlier step, through {operation}: "
            f"{what} is carried over with its history{_unless(context, record)}"
        )
    return f"backward goes a second time through {operation}, whose graph is already freed"


def _unless(context: RuleContext, record: AutogradErrorRecord) -> str:
    """Return what a training loop must do that gradscope's own loop does not."""
    if record.reset is not None:
        return f", unless {record.reset}() is called between the steps"
    if not record.step or ended_by(context.recording) is record:
        return ""
    if _is_kept_for_good(record):
        return ", which the training loop must reset or detach between the steps"
    return ", unless the training loop resets or detaches it between the steps"


def _remedy(record: AutogradErrorRecord) -> str:
    freed = record.location("freed")
    if freed is None:
        return _remedy_of_kept(record)
    if freed.operation == "grad":
        return "pass create_graph=True or retain_graph=True to autograd.grad"
    # Without a line of its own, the second backward is that of gradscope, on the loss that the
    # function returns.
    if record.location("call") is None:
        return "return the loss without calling backward: gradscope calls it"
    return "add up the losses and call backward once, or pass retain_graph=True to the first call"


def _remedy_of_kept(record: AutogradErrorRecord) -> str:
    for carried in record.carried:
        if not carried.is_replaced:
            return (
                f"recreate {carried.attribute} in every forward; or, if nothing should learn "
                "through it, detach it"
            )
        return f"store it detached: {carried.attribute} = state.detach(), or each part of a tuple"
    return "detach the carried state: self.hidden = hidden.detach()"
