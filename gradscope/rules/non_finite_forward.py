"""GS104: numbers of the forward that are not finite, and matter."""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

from gradscope.recording.evidence.nonfinite import NonfiniteRecord
from gradscope.recording.finding import Finding, Severity
from gradscope.rules.case import Case
from gradscope.rules.forward_causes import cause_in_forward
from gradscope.rules.gradient_breaks import forward_inputs, forward_stats, gradient_breaks
from gradscope.rules.rule import Rule
from gradscope.rules.upstream import line_of

_OWNERS = {
    "parameter": "parameter {}",
    "buffer": "buffer {}",
    "batch": "the batch",
    "tensor": "a tensor made before the forward",
}
_OWNERS_REMEDY = {
    "parameter": "initialise it (torch.empty leaves whatever was in memory), or look for the step "
    "or checkpoint that broke it",
    "buffer": "look for what writes to it: running statistics keep a NaN for good",
    "batch": "clean the data: torch.nan_to_num, or drop rows for which torch.isfinite is false",
    "tensor": "look at how it was made, and check it with torch.isfinite",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class NonFiniteForward(Rule):
    """NaN or infinity made in the forward, in the loss or in what its gradient is made of.

    What it finds:
        The first operation of the forward that makes NaN or infinity of finite numbers, where that
        reaches the loss or spoils gradients; or the parameter, buffer or batch that holds such
        numbers from the start.

    Why it matters:
        A loss of NaN teaches nothing, and its gradients turn every weight into NaN with one step.
        NaN in rows that are thrown away later does so too: the gradient of zero that these rows
        get is multiplied by NaN.

    How it is measured:
        If the loss or a gradient is not finite, the forward is run again from the same random
        state, and the operands of every operation are compared with what it returns. An infinity
        written on purpose, as the -inf of a mask that softmax turns into zero, is none of these.
        NaN that was made of an earlier infinity is told with the operation that made the infinity.

    How to fix it:
        Write the function in its stable form: log_softmax for the log of a softmax, losses with
        logits, a small number in a denominator or under a root. Leave each row of a masked
        attention at least one position. In float16 keep sums and powers in float32.

    When it may be wrong:
        A model that draws random numbers outside of torch, random and numpy may not repeat its
        forward. Inside compiled code nothing is seen: only the loss itself is judged there.

    Source:
        Measured: with this search in the forward and GS103 in the backward, nine of nine models
        whose parameters got NaN or infinity were located; `torch.autograd.detect_anomaly` blamed
        another operation for three of them, as the multiplication after a fully masked softmax.
    """

    code: ClassVar[str] = "GS104"
    name: ClassVar[str] = "non-finite-forward"
    level: ClassVar[Severity] = "error"
    explains: ClassVar[tuple[str, ...]] = (
        "GS102",
        "GS103",
        "GS105",
        "GS106",
        "GS108",
        "GS109",
        "GS110",
        "GS111",
        "GS112",
        "GS204",
        "GS601",
        "GS603",
        "GS604",
    )

    def obstacle(self, case: Case) -> str | None:
        """Only what is broken needs the search."""
        if _loss_word(case) or not _broken_parameters(case):
            return None
        return case.examination_obstacle("non-finite")

    def check(self, case: Case) -> Iterator[Finding]:
        """Yield a finding for every origin of what is not finite."""
        records = {one.index: one for one in case.recording.evidence_of(NonfiniteRecord)}
        lost = [one for one in records.values() if one.reaches_loss]
        mattering = lost or [one for one in records.values() if _spoils_gradients(case, one)]
        by_line: dict[int | None, list[NonfiniteRecord]] = {}
        for one in mattering:
            root = _root(records, one)
            by_line.setdefault(_line(case, root), []).append(one)
        for ones in by_line.values():
            yield self._finding(case, records, ones[0])
        if not lost and (loss := _loss_word(case)):
            yield self._unlocated(case, loss)

    def _finding(
        self, case: Case, records: dict[int, NonfiniteRecord], seen: NonfiniteRecord
    ) -> Finding:
        root = _root(records, seen)
        if root.source in _OWNERS:
            message, remedy = _owned(root), _OWNERS_REMEDY[root.source]
            evidence: dict[str, float | str | bool | None] = {}
        else:
            cause = cause_in_forward(root)
            message = f"{cause.function} makes {root.makes}{cause.reason}"
            remedy, evidence = cause.remedy, dict(cause.evidence)
        parameters = _broken_parameters(case)
        loss = _loss_word(case)
        outcome = f"the loss is {loss}" if loss else _gradients(len(parameters))
        site = _mask(records, root) if root.blocked_rows else _line(case, root)
        later = None
        if seen.site != site:
            what = "takes it in" if seen is root and root.source in _OWNERS else "makes NaN of it"
            later = case.related(seen.site, f"{seen.operation.strip('_')} {what}")
        module = None
        if root.tensor is not None:
            module = case.module_of(case.recording.nodes[root.tensor.node])
        return self.finding(
            case,
            message=f"{message}; {outcome}",
            remedy=remedy,
            site=site,
            related=(later,),
            parameters=parameters,
            modules=(module,) if module else (),
            evidence={
                "operation": root.operation,
                "nonfinite_elements": root.broken,
                "reaches_loss": seen.reaches_loss,
                "parameters": len(parameters),
                **evidence,
            },
        )

    def _unlocated(self, case: Case, loss: str) -> Finding:
        reason = case.examination_obstacle("non-finite")
        why = f" ({reason})" if reason else ""
        return self.finding(
            case,
            message=f"the loss is {loss}, and the operation that made it was not seen{why}",
            remedy="check the batch, the weights and what comes before the loss by torch.isfinite",
            site=line_of(case, case.first.nodes[0]) if case.first.nodes else None,
            parameters=_broken_parameters(case),
            evidence={"loss": loss},
        )


def _root(records: dict[int, NonfiniteRecord], one: NonfiniteRecord) -> NonfiniteRecord:
    """Return what made the infinity of which an operation made NaN, unless that was meant."""
    if one.blocked_rows or one.because_of is None:
        return one
    earlier = records.get(one.because_of)
    meant = earlier is None or earlier.source in ("constant", "buffer", "tensor")
    return one if meant or earlier is None else _root(records, earlier)


def _mask(records: dict[int, NonfiniteRecord], softmax: NonfiniteRecord) -> int | None:
    """Return the line that wrote -inf into scores, else that of their softmax."""
    mask = None if softmax.because_of is None else records.get(softmax.because_of)
    writes = mask is not None and mask.source == "constant" and mask.tensor is not None
    return mask.site if mask is not None and writes else softmax.site


def _line(case: Case, root: NonfiniteRecord) -> int | None:
    """Return the line of an operation, of a parameter the one that made it."""
    for parameter in case.recording.parameters:
        if root.source == "parameter" and parameter.name == root.name:
            return root.site if parameter.site is None else parameter.site
    if root.site is not None or root.tensor is None:
        return root.site
    return line_of(case, case.recording.nodes[root.tensor.node])


def _owned(root: NonfiniteRecord) -> str:
    owner = _OWNERS[root.source].format(root.name)
    elements = "1 element" if root.broken == 1 else f"{root.broken} elements"
    return f"{owner} holds {root.makes} in {elements} before the forward begins"


def _gradients(count: int) -> str:
    return "1 gradient is not finite" if count == 1 else f"{count} gradients are not finite"


def _loss_word(case: Case) -> str | None:
    """Return how a loss that is not finite is written, None for another one."""
    loss = None if case.first.step is None else case.first.step.loss
    if loss is None or math.isfinite(loss):
        return None
    return "NaN" if math.isnan(loss) else "infinite"


def _broken_parameters(case: Case) -> tuple[int, ...]:
    return tuple(
        stat.parameter
        for stat in case.first.parameter_stats.values()
        if stat.gradient is not None and stat.gradient.nonfinite
    )


def _spoils_gradients(case: Case, record: NonfiniteRecord) -> bool:
    """Return whether NaN of the forward is what a gradient broke on."""
    if record.makes != "NaN" or (record.tensor is None and record.source not in _OWNERS):
        return False
    after = None if record.tensor is None else _after(case, record.tensor.node)
    stats = case.shared(forward_stats)
    broken = {ref.node for ref, stat in stats.items() if stat.nonfinite}
    return any(
        one.parameters
        and (after is None or one.node.index in after)
        and not broken.isdisjoint(
            {one.node.index, *(ref.node for ref in forward_inputs(case, one.node.index))}
        )
        for one in case.shared(gradient_breaks)
    )


def _after(case: Case, node: int) -> set[int]:
    """Return a node and those that its output led to."""
    waiting, seen = [node], {node}
    while waiting:
        for user in case.users.get(waiting.pop(), ()):
            if user not in seen:
                seen.add(user)
                waiting.append(user)
    return seen
