"""GS204: gradients that are exactly zero, step after step."""

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

from gradscope.recording.evidence.batch import BatchRecord
from gradscope.recording.evidence.dropped import DroppedRecord
from gradscope.recording.finding import Finding, Severity
from gradscope.rules.case import Case
from gradscope.rules.measure import Measure
from gradscope.rules.reach.dead_ends import DeadEnd, DeadEnds
from gradscope.rules.reach.reach import Reach
from gradscope.rules.reach.zero_operations import (
    CAUSES,
    FLOORS,
    REMEDIES,
    ROUTING,
    SECOND_DERIVATIVES,
    WHATEVER_VALUES,
)
from gradscope.rules.rule import Rule
from gradscope.rules.subtrees import Subtrees, counted, named

_LARGER_BATCH = "give a batch of several examples: for a single one this may be by chance"


@dataclass(frozen=True, slots=True, kw_only=True)
class ZeroGradient(Rule):
    """Backward comes to parameters, and their gradient is exactly zero in every step.

    What it finds:
        Parameters whose every gradient element is exactly 0.0 after the first backward and after
        every probing step, and the operation that turned a gradient into zeros: two factors that
        both start at zero, a ReLU whose inputs are all negative, a clamp that cuts off everything,
        `round`, `sign` and `floor`, a draw by `torch.normal` or `torch.bernoulli`, the second
        derivative of ReLU, a saturated activation, a mask that leaves nothing.

    Why it matters:
        A gradient of zero moves nothing, so what makes it zero stays as it is: without weight decay
        the parameters never change. A factor that starts at zero is fine as long as the other one
        does not, as in low-rank adaptation.

    How it is measured:
        From each such parameter towards the loss, the first operation whose own output has a
        gradient is the dead end. Where forwards with other random numbers (up to 32, fewer of a
        large model) bring a gradient to a part of what lies behind it, chance shut it, as dropout
        does or a path that is sampled, and it is left out. The severity goes by the share of the
        trainable elements that are stuck behind it: a note below `note_below`, an error above
        `error_above`, a warning in between; without probing steps no more than a warning. Where
        second derivatives are zero and nothing else learns, it is an error whatever the share.

    How to fix it:
        Start one of the two factors at random; lower the learning rate or the bias, or use
        LeakyReLU or GELU, where a layer died; keep rounding and clamping out of the way of the
        gradient by a straight-through estimator; draw by `rsample()`; where the loss takes second
        derivatives, use tanh, SiLU or softplus.

    When it may be wrong:
        A batch that leaves a branch without an example looks the same; experts beside others that
        learn, and a loss of zero whose margin is kept, are notes; for a batch of a single example
        it is a warning at most where another one may open what this one leaves shut. Left out are
        rows of embeddings, experts without a row, biases whose parts cancel, and weights that meet
        nothing but zeros in the data.

    Source:
        Measured: with three steps of Adam, 8 of 8 healthy kinds of zero initialisation open (LoRA,
        ReZero, Fixup, AdaLN-zero and others), 15 of 15 stuck models stay, and none of 86 healthy
        models is found. SAPT issue 11, relora issue 18: low-rank factors that both started at zero.
    """

    code: ClassVar[str] = "GS204"
    name: ClassVar[str] = "zero-gradient"
    level: ClassVar[Severity] = "warning"
    explains: ClassVar[tuple[str, ...]] = (
        "GS102",
        "GS105",
        "GS106",
        "GS109",
        "GS110",
        "GS111",
        "GS203",
    )
    measures: ClassVar[tuple[Measure, ...]] = (Measure(number="share_of_trainable_elements"),)

    note_below: float = 0.05
    """Share of the trainable elements, 0 to 1, below which a finding is a note.
    Measured: true but harmless cases, as a query that only one position uses, stay below it."""
    error_above: float = 0.25
    """Share of the trainable elements, 0 to 1, above which a finding is an error; as above."""

    def obstacle(self, case: Case) -> str | None:
        """Return why this rule cannot judge the recording."""
        return None if case.has_backward else "there was no backward"

    def check(self, case: Case) -> Iterator[Finding]:
        """Yield a finding for every line at which gradients become zero."""
        total = sum(p.numel for p in case.recording.parameters if p.requires_grad)
        for end in DeadEnds(case).found:
            elements = sum(case.recording.parameters[p].numel for p in end.parameters)
            yield self._finding(case, end, elements / total if total else 0.0)

    def _finding(self, case: Case, end: DeadEnd, share: float) -> Finding:
        probes = len(case.probes)
        parts = Subtrees(case.recording).parts(end.parameters)
        what = f"{named(parts)} ({counted(len(end.parameters), 'parameter')})"
        lasting = f", and still after {counted(probes, 'optimizer step')}" if probes else ""
        why = _why(case, end)
        zeros_lie_elsewhere = end.zeros and end.site != case.site(end.node.site)
        lost = _lost_to_derivative(case) if _twice_differentiated(end) else ()
        return self.finding(
            case,
            message=f"the gradient of {what} is exactly zero{lasting}: {why}",
            remedy=_LARGER_BATCH if _is_of_one_row(case, end) else _remedy(end),
            site=end.site,
            related=(
                case.related(end.made, "the layer is made here"),
                case.related(end.node.site, "here the gradient becomes zero")
                if zeros_lie_elsewhere
                else None,
            ),
            severity=self._severity(case, end, share),
            parameters=(*end.parameters, *lost),
            evidence={
                "operation": end.node.operation,
                "share_of_trainable_elements": share,
                "note_below": self.note_below,
                "error_above": self.error_above,
                "steps": 1 + probes,
            },
            count=len(end.parameters),
            caused_by=("GS102",) if end.underflows else (),
        )

    def _severity(self, case: Case, end: DeadEnd, share: float) -> Severity:
        if share < self.note_below or _is_left_out(case, end) or _is_satisfied(case, end):
            return "note"
        mild = not case.probes or end.in_recurrent_layer or _is_of_one_row(case, end)
        if _twice_differentiated(end) and not mild and not _learns(case):
            return "error"
        return "warning" if mild or share <= self.error_above else "error"


def _learns(case: Case) -> bool:
    """Return whether any parameter gets more than zeros in any step."""
    return any(stat.reach == "gradient" for stat in case.recording.parameter_stats)


def _is_left_out(case: Case, end: DeadEnd) -> bool:
    """Return whether modules built alike learn, as experts that were chosen do."""
    reach = case.shared(Reach)
    learning = reach.learning - set(end.parameters)
    return (
        not end.zeros
        and end.node.operation.startswith(ROUTING)
        and all(
            reach.subtrees.has_twin(part, learning) for part in reach.subtrees.parts(end.parameters)
        )
    )


def _is_of_one_row(case: Case, end: DeadEnd) -> bool:
    """Return whether the zeros come of the values of a batch of a single example.

    A layer may be shut for one example and open for the next, and a softmax over the batch has
    nothing to choose from.
    """
    batches = case.recording.evidence_of(BatchRecord)
    shape = end.node.outputs[0] if end.node.outputs else None
    return (
        any(batch.is_one_example for batch in batches)
        and shape is not None
        and math.prod(shape.dims[:-1]) == 1
        and not end.zeros
        and not end.node.operation.startswith(WHATEVER_VALUES)
    )


def _is_satisfied(case: Case, end: DeadEnd) -> bool:
    """Return whether the loss is zero because a margin is kept."""
    step = case.first.step
    return step is not None and step.loss == 0 and end.node.operation.startswith(FLOORS)


def _twice_differentiated(end: DeadEnd) -> str | None:
    """Return the activation whose second derivative hands the zeros on."""
    kinds = SECOND_DERIVATIVES.items()
    return next((name for kind, name in kinds if end.node.operation.startswith(kind)), None)


def _lost_to_derivative(case: Case) -> tuple[int, ...]:
    """Return the parameters that the model's output depends on, and its derivative does not."""
    reach = case.shared(Reach)
    called = {call.module for call in case.recording.calls}
    known = {parameter for stop in reach.stops for parameter in stop.parameters}
    for record in case.recording.evidence_of(DroppedRecord):
        known.update(record.parameters)
    owners = {index: case.recording.parameters[index].module for index in reach.lost - known}
    return tuple(sorted(index for index, owner in owners.items() if owner in called))


def _why(case: Case, end: DeadEnd) -> str:
    operation = _function(end.node.operation)
    if end.zeros:
        return _why_of_zeros(case, end, operation)
    if end.underflows:
        return f"what comes to {operation} is so small that rounding makes zero of its products"
    if end.in_recurrent_layer:
        return "the only step that enters the loss starts from a hidden state of zeros"
    if activation := _twice_differentiated(end):
        return f"the loss takes a second derivative, and that of {activation} is zero everywhere"
    if _is_of_one_row(case, end):
        return f"{operation}{_after(case, end)} passes nothing on for the batch's only example"
    for beginnings, text in CAUSES:
        if end.node.operation.startswith(beginnings):
            return text.format(f"{operation}{_after(case, end)}")
    return f"{operation} passes nothing on"


def _why_of_zeros(case: Case, end: DeadEnd, operation: str) -> str:
    records = [case.recording.parameters[zero] for zero in end.zeros]
    names = [record.name for record in records]
    listed = f"{names[0]} and {len(names) - 1} more" if len(names) > 2 else " and ".join(names)
    if not records[0].requires_grad:
        return f"{operation} multiplies by {listed}, frozen at zero"
    starts, them = ("starts", "it") if len(names) == 1 else ("start", "them")
    return f"{listed} {starts} at zero, and so does what would move {them}"


def _after(case: Case, end: DeadEnd) -> str:
    """Return which module the operation is given its input by, where that is another one."""
    givers = (case.recording.nodes[ref.node] for ref in case.successors.get(end.node.index, ()))
    modules = {case.module_of(node) for node in givers} - {case.module_of(end.node), None, ""}
    return f" after {modules.pop()}" if len(modules) == 1 else ""


def _function(operation: str) -> str:
    """Return an operation as Python spells it: `log_softmax` for `LogSoftmaxBackward0`."""
    name = re.sub(r"Backward\d*$", "", operation)
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower()


def _remedy(end: DeadEnd) -> str:
    operation = end.node.operation
    if end.zeros:
        return "start at random all but one of the factors of a product"
    if end.underflows:
        return (
            "find where the gradient shrinks on its way here: activations that are flat, small "
            "weights, or a small factor on the loss"
        )
    if end.in_recurrent_layer:
        return "use every step's output or the final hidden state, not the output at one position"
    if activation := _twice_differentiated(end):
        return f"use tanh, SiLU or softplus in place of {activation}"
    for beginnings, remedy in REMEDIES:
        if operation.startswith(beginnings):
            return remedy.format(_function(operation))
    return "look at the values that it is given, and at what it masks"
