"""GS501 and GS504: backward from a tensor without history, or of more than one element."""

from collections.abc import Iterator
from typing import ClassVar

from gradscope.frozen import dataclass
from gradscope.recording.cut_record import CutRecord
from gradscope.recording.evidence.failures import AutogradErrorRecord
from gradscope.recording.evidence.parameters import FreezeRecord
from gradscope.recording.finding import Finding, Severity
from gradscope.rules.context import RuleContext
from gradscope.rules.helpers.autograd_errors import errors_of, evidence_of, related_to, site_of
from gradscope.rules.helpers.source_text import NO_INPUT, remedy_of_reentrant
from gradscope.rules.rule import Rule


@dataclass(frozen=True, slots=True, kw_only=True)
class NoGraph(Rule):
    """The loss has no graph: no gradient can flow from it.

    What it finds:
        A loss that does not require grad: it was detached, rebuilt from numbers, chosen by an
        operation without a derivative, computed under `no_grad`, or every parameter is frozen. Also
        a loss that requires grad by itself, as after `loss.requires_grad_()`, and has no history
        either: backward then runs, and reaches nothing. In a run, this counts if no parameter ever
        gets a gradient.

    Why it matters:
        `backward()` raises "element 0 of tensors does not require grad and does not have a
        grad_fn". Setting requires_grad on the loss silences that, and nothing learns.

    How it is measured:
        A cut is a call of the forward that takes tensors which require grad and returns none that
        does. The rule follows the results of each cut to the loss. The last cut before the loss is
        the cause; under `no_grad` it is the line that switched gradients off. Without a cut, and
        if no parameter requires grad, it is the line of the script that freezes them, if it is the
        only one. There is no threshold.

    How to fix it:
        Compute the loss from the model's output itself, with gradients switched on, by operations
        that have a derivative. Take `item()` and `detach()` only for logging.

    When it may be wrong:
        The finding is autograd's own word. The line may be another where numbers left torch, by
        `item()` or `numpy()`, and cannot be followed: then it is the last line that took some out.

    Source:
        torch documentation, "Autograd mechanics": "Locally disabling gradient computation".
    """

    code: ClassVar[str] = "GS501"
    name: ClassVar[str] = "no-graph"
    level: ClassVar[Severity] = "error"
    explains: ClassVar[tuple[str, ...]] = ("GS2",)

    def check(self, context: RuleContext) -> Iterator[Finding]:
        """Yield a finding for a loss without a graph."""
        for record in errors_of(context, "no-graph"):
            yield self._finding(context, record)
        # `loss.requires_grad_()` makes the loss a leaf: the graph consists of it alone.
        root = next((node for node in context.first.nodes if node.depth == 0), None)
        # A script may give a batch without targets a loss that is only a constant.
        trains = context.run is not None and bool(context.run.learning)
        if root is not None and root.kind == "leaf" and not trains:
            yield self._of_leaf(context)

    def _finding(self, context: RuleContext, record: AutogradErrorRecord) -> Finding:
        site = site_of(record, "switch", "unrecorded", "cut", "call")
        if record.frozen is not None:
            frozen = _line_that_freezes(context)
            site = _first_module(context) if frozen is None else frozen
        return self.finding(
            context,
            message=f"{record.subject or 'the start of backward'} has no graph: {_why(record)}",
            remedy=_remedy(context, record),
            site=site,
            related=related_to(
                context,
                record,
                site,
                unrecorded="the first operation that ran without gradients",
                call="backward is called here",
            ),
            evidence={**evidence_of(record), "frozen_parameters": record.frozen},
        )

    def _of_leaf(self, context: RuleContext) -> Finding:
        cut = _last_cut(context)
        return self.finding(
            context,
            message="the loss requires grad by itself and has no graph: backward reaches nothing",
            remedy="return the computed loss without requires_grad_() or torch.tensor()",
            site=None if cut is None else cut.site,
            parameters=() if cut is None else cut.parameters,
            evidence={"loss_is_a_leaf": True},
        )


def _why(record: AutogradErrorRecord) -> str:
    if record.frozen is not None:
        return f"none of the {record.frozen} parameters requires grad"
    cut, unrecorded = record.location("cut"), record.location("unrecorded")
    if cut is not None:
        return f"{cut.operation} cuts it off from the parameters"
    if unrecorded is not None and unrecorded.operation == "checkpoint":
        return NO_INPUT
    if unrecorded is not None:
        return f"{unrecorded.operation}() ran with gradients switched off"
    return "none of its inputs requires grad"


def _remedy(context: RuleContext, record: AutogradErrorRecord) -> str:
    if record.frozen is not None:
        return "keep requires_grad enabled for trained modules: model.head.requires_grad_(True)"
    cut = record.location("cut")
    if cut is not None:
        return f"compute the loss without {cut.operation}, and use it only for logging"
    unrecorded = record.location("unrecorded")
    if unrecorded is not None and unrecorded.operation == "checkpoint":
        return remedy_of_reentrant(context.site(unrecorded.site))
    if unrecorded is not None:
        return "run the forward and the loss outside of no_grad and inference_mode"
    return "compute the loss from the output of the model"


def _line_that_freezes(context: RuleContext) -> int | None:
    """Return the only line of a script that switches gradients of parameters off."""
    lines = {one.site for one in context.recording.evidence_of(FreezeRecord)}
    return lines.pop() if len(lines) == 1 and context.run is not None else None


def _first_module(context: RuleContext) -> int | None:
    sites = (module.site for module in context.recording.modules if module.in_model)
    return next((site for site in sites if site is not None), None)


def _last_cut(context: RuleContext) -> CutRecord | None:
    graph = context.first.step.graph if context.first.step else None
    cuts = [cut for cut in context.recording.cuts if cut.graph == graph]
    return cuts[-1] if cuts else None


@dataclass(frozen=True, slots=True, kw_only=True)
class NonScalarBackward(Rule):
    """The loss is not a scalar, and backward gets no gradient to start from.

    What it finds:
        A loss of any other number of elements than one: a loss function with `reduction="none"`, or
        a mean over some dimensions only.

    Why it matters:
        `backward()` raises "grad can be implicitly created only for scalar outputs": the gradient
        of several numbers is only defined for one weighting of them.

    How it is measured:
        By the shape of the loss. There is no threshold.

    How to fix it:
        Reduce the loss by `.mean()` or `.sum()`, after weighting or masking its elements; or give
        backward the weights, as `loss.backward(gradient=weights)`.

    When it may be wrong:
        Never: autograd refuses it. A vector for a vector-Jacobian product is given by
        `--grad-output`.

    Source:
        torch documentation, `torch.Tensor.backward` and `torch.autograd.backward`.
    """

    code: ClassVar[str] = "GS504"
    name: ClassVar[str] = "non-scalar-backward"
    level: ClassVar[Severity] = "error"

    def check(self, context: RuleContext) -> Iterator[Finding]:
        """Yield a finding for a loss that is not one number."""
        for record in errors_of(context, "non-scalar"):
            site = site_of(record, "forward", "call")
            dims = _dims(context, record)
            shape = "" if dims is None else f" of shape [{', '.join(map(str, dims))}]"
            subject = record.subject or "the tensor that backward is called on"
            yield self.finding(
                context,
                message=f"{subject} is a tensor{shape}: backward needs a scalar",
                remedy="reduce it with .mean() or .sum()",
                site=site,
                related=related_to(context, record, site, call="backward is called here"),
                evidence={
                    **evidence_of(record),
                    "shape": None if dims is None else "x".join(map(str, dims)) or "scalar",
                },
            )


def _dims(context: RuleContext, record: AutogradErrorRecord) -> tuple[int, ...] | None:
    if record.node is None:
        return None
    outputs = context.recording.nodes[record.node].outputs
    return outputs[0].dims if len(outputs) == 1 and outputs[0] is not None else None
