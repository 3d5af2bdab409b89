"""GS106: activations at the ends of their range."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

from gradscope.recording.evidence.forward import SaturationRecord
from gradscope.recording.finding import Finding, Severity
from gradscope.rules.context import RuleContext
from gradscope.rules.helpers.upstream import line_of, parameters_before, weight_follows
from gradscope.rules.measure import Measure
from gradscope.rules.rule import Lasting, Rule


@dataclass(frozen=True, slots=True)
class _Activation:
    """The calls of one activation in one module, on one line."""

    operation: str
    module: str
    elements: int
    saturated: int
    nodes: tuple[int, ...]

    @property
    def share(self) -> float:
        return self.saturated / self.elements


@dataclass(frozen=True, slots=True, kw_only=True)
class SaturatedActivation(Rule):
    """Sigmoid, tanh or softmax whose inputs are so large that hardly any gradient passes.

    What it finds:
        Activations inside the model whose outputs are mostly at the ends of their range.

    Why it matters:
        There the derivative is close to 0. The layers before the activation learn very slowly, or
        not at all if rounding makes the derivative exactly 0.

    How it is measured:
        The forward runs again. An element of a sigmoid or tanh is saturated if the derivative is
        below 5 % of its maximum. A row of a softmax is saturated if one entry is above .99; rows
        with a single entry that is not masked are left out. An activation before the loss without a
        weight after it may saturate, and so may the soft side of a straight-through estimator.

    How to fix it:
        Normalise the inputs. Use Xavier initialisation. In attention, divide the scores by the
        square root of the head width. Add a normalisation layer before the activation.

    When it may be wrong:
        Gates and attention of a trained model may have learnt to be that certain. The rule does not
        see the softmax inside fused attention.

    Source:
        Measured: at the start healthy models have at most 1 % saturated elements of sigmoid and
        tanh and no saturated softmax; weights four times too large had 57 %, inputs a thousand
        times too large 99 %, attention without its scaling 85 to 100 %.
    """

    code: ClassVar[str] = "GS106"
    name: ClassVar[str] = "saturated-activation"
    level: ClassVar[Severity] = "warning"
    judges_learning: ClassVar[bool] = True
    lasts: ClassVar[Lasting] = "always"
    explains: ClassVar[tuple[str, ...]] = ("GS102",)
    measures: ClassVar[tuple[Measure, ...]] = (Measure(number="share"),)

    share: float = 0.5
    """Share of elements, for softmax of rows. Measured: at most .01 in healthy models."""
    elements: int = 16
    """Elements or rows below which an activation is not judged, as a single learnt gate."""

    def skip_reason(self, context: RuleContext) -> str | None:
        """The outputs are counted in a second forward."""
        return context.probe_skip_reason("forward")

    def check(self, context: RuleContext) -> Iterator[Finding]:
        """Yield a finding for every line with saturated activations."""
        by_line: dict[int | None, list[_Activation]] = {}
        for one in _activations(context):
            site = line_of(context, context.recording.nodes[one.nodes[0]])
            subject = f"{one.operation} {one.module}".strip()
            if one.elements >= self.elements:
                context.measured(
                    self.code, "share", one.share, self.share, subject=subject, site=site
                )
            enough = one.elements >= self.elements and one.share >= self.share
            if enough and weight_follows(context, one.nodes[0]) and not _is_surrogate(context, one):
                by_line.setdefault(site, []).append(one)
        for site, found in by_line.items():
            yield self._finding(context, site, found)

    def _finding(self, context: RuleContext, site: int | None, found: list[_Activation]) -> Finding:
        worst = max(found, key=lambda one: one.share)
        nodes = [node for one in found for node in one.nodes]
        return self.finding(
            context,
            message=_message(worst, len(found)),
            remedy=_remedy(worst.operation),
            site=site,
            parameters=parameters_before(context, nodes),
            modules=tuple(dict.fromkeys(one.module for one in found if one.module)),
            evidence={
                "activation": worst.operation,
                "saturated": worst.saturated,
                "elements": worst.elements,
                "share": worst.share,
                "limit": self.share,
            },
            count=len(found),
        )


def _activations(context: RuleContext) -> list[_Activation]:
    """Return the activations of the first step, the calls of each together."""
    groups: dict[tuple[int | None, str, str], list[SaturationRecord]] = {}
    for record in context.recording.evidence_of(SaturationRecord):
        node = context.recording.nodes[record.tensor.node]
        key = (node.site, record.operation, context.module_of(node) or "")
        groups.setdefault(key, []).append(record)
    return [
        _Activation(
            operation,
            module,
            sum(record.elements for record in records),
            sum(record.saturated for record in records),
            tuple(record.tensor.node for record in records),
        )
        for (_, operation, module), records in groups.items()
    ]


def _is_surrogate(context: RuleContext, one: _Activation) -> bool:
    """Return whether it lends its gradient to hard choices: `hard - soft.detach() + soft`."""
    if one.operation == "tanh":
        return False
    users = list(context.consumers(one.nodes[0]))
    return bool(users) and all(user.operation == "AddBackward0" for user in users)


def _message(worst: _Activation, activations: int) -> str:
    where = f" in {worst.module}" if worst.module else ""
    others = f", and {activations - 1} more on this line are saturated" if activations > 1 else ""
    if worst.operation == "softmax":
        what = f"one entry is above .99 in {worst.share:.0%} of its {worst.elements} rows"
    else:
        what = f"{worst.share:.0%} of its {worst.elements} outputs are at the ends of its range"
    return f"{worst.operation}{where} is saturated: {what}, where the derivative is near 0{others}"


def _remedy(operation: str) -> str:
    if operation == "softmax":
        return (
            "make the scores smaller: in attention, divide them by the square root of the head's "
            "width; elsewhere, normalise their inputs"
        )
    return (
        "make its inputs smaller: normalise the batch, use Xavier initialisation, or add a "
        "normalisation layer before it"
    )
