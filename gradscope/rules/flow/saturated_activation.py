"""GS106: activations at the ends of their range."""

from collections.abc import Iterator
from typing import ClassVar

from gradscope.frozen import dataclass
from gradscope.recording.evidence.forward import SaturationRecord
from gradscope.recording.evidence.parameters import InitialisationRecord, LoadedRecord
from gradscope.recording.finding import Finding, RelatedLocation, Severity
from gradscope.rules.context import RuleContext
from gradscope.rules.helpers.source_text import line_of, parameters_before, weight_follows
from gradscope.rules.measurement import Measure
from gradscope.rules.needs import Needs, probe_ran
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
        with a single unmasked entry are skipped. An activation before the loss without a weight
        after it may saturate, and so may the soft side of a straight-through estimator. It is an
        error where every element is saturated and less than 1e-4 of the gradient passes, and a note
        for the difference of data and learned thresholds, which no layer has mixed before.

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
    needs: ClassVar[Needs] = (probe_ran("forward"),)

    share: float = 0.5
    """Share of the elements, or of the rows for softmax. Measured: at most 0.01 in healthy models.
    """
    fresh_share: float = 0.25
    """Share of the rows of a softmax before training, in a model without loaded weights. Measured:
    none in healthy models; attention of width 256 without its scaling has 0.44.
    """
    passed: float = 1e-4
    """Ratio of the gradient norms before and after an activation, below which it is an error: a
    hundredth of the derivative that counts as saturated.
    """
    elements: int = 16
    """Number of elements or rows below which an activation is not judged, such as a single learned
    gate.
    """

    def check(self, context: RuleContext) -> Iterator[Finding]:
        """Yield a finding for every line with saturated activations."""
        by_line: dict[int | None, list[_Activation]] = {}
        for one in _activations(context):
            site = line_of(context, context.recording.nodes[one.nodes[0]])
            subject = f"{one.operation} {one.module}".strip()
            limit = self._limit(context, one)
            if one.elements >= self.elements:
                context.measured(self.code, "share", one.share, limit, subject=subject, site=site)
            enough = one.elements >= self.elements and one.share >= limit
            if enough and weight_follows(context, one.nodes[0]) and not _is_surrogate(context, one):
                by_line.setdefault(site, []).append(one)
        for site, found in by_line.items():
            yield self._finding(context, site, found)

    def _limit(self, context: RuleContext, one: _Activation) -> float:
        is_trained = context.run is not None or bool(context.recording.evidence_of(LoadedRecord))
        return self.share if is_trained or one.operation != "softmax" else self.fresh_share

    def _is_shut(self, context: RuleContext, one: _Activation) -> bool:
        """Return whether all of an activation is saturated and hardly any gradient passes it."""
        ratios = [_passed(context, node) for node in one.nodes]
        is_known = all(ratio is not None and ratio < self.passed for ratio in ratios)
        return one.saturated == one.elements and is_known

    def _finding(self, context: RuleContext, site: int | None, found: list[_Activation]) -> Finding:
        shut = all(self._is_shut(context, one) for one in found)
        worst = max(found, key=lambda one: one.share)
        nodes = [node for one in found for node in one.nodes]
        steps = not shut and all(_is_soft_step(context, one) for one in found)
        return self.finding(
            context,
            message=_message(worst, len(found)),
            remedy=_remedy(worst.operation),
            site=site,
            related=_filled(context, nodes),
            severity="error" if shut else "note" if steps else None,
            parameters=parameters_before(context, nodes),
            modules=tuple(dict.fromkeys(one.module for one in found if one.module)),
            evidence={
                "activation": worst.operation,
                "saturated": worst.saturated,
                "elements": worst.elements,
                "share": worst.share,
                "limit": self._limit(context, worst),
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


def _passed(context: RuleContext, node: int) -> float | None:
    """Return the gradient norm before an activation over that after it; None if unknown."""
    stats = [context.tensor_stat(node, 0)]
    # Of several inputs, the norms would not compare with one output.
    stats += [context.tensor_stat(r.node, r.slot) for r in context.successors.get(node, ())]
    norms = [
        None if stat is None or stat.gradient is None else stat.gradient.norm for stat in stats
    ]
    if len(norms) != 2 or None in norms or not norms[0]:
        return None
    return (norms[1] or 0.0) / norms[0]


def _filled(context: RuleContext, nodes: list[int]) -> Iterator[RelatedLocation | None]:
    """Yield the lines that initialise the layers right before some activations."""
    before = {ref.node for node in nodes for ref in context.successors.get(node, ())}
    taken = {ref.node for node in before for ref in context.successors.get(node, ())}
    parameters = {context.recording.nodes[node].parameter for node in taken} - {None}
    records = context.recording.evidence_of(InitialisationRecord)
    for site in dict.fromkeys(one.site for one in records if one.parameter in parameters):
        yield context.related(site, "their inputs' layers are initialised here")


def _is_surrogate(context: RuleContext, one: _Activation) -> bool:
    """Return whether it lends its gradient to hard choices: `hard - soft.detach() + soft`."""
    # Probabilities lend their gradient to choices; a tanh that is added is mostly a branch.
    if one.operation == "tanh":
        return False
    users = list(context.consumers(one.nodes[0]))
    return bool(users) and all(user.operation == "AddBackward0" for user in users)


_PRODUCTS = ("Addmm", "Baddbmm", "Bmm", "Conv", "Mm", "Mv", "Dot")


def _is_soft_step(context: RuleContext, one: _Activation) -> bool:
    """Return whether it compares data with learned thresholds, as `sigmoid(8 * (x - edge))` does.

    It is meant to be flat away from its thresholds: nothing before it mixes features.
    """
    if one.operation == "softmax":
        return False
    behind = list(context.behind(one.nodes))
    is_mixed = any(node.operation.startswith(_PRODUCTS) for node in behind)
    differences = (node.index for node in behind if node.operation.startswith(("Sub", "Rsub")))
    return not is_mixed and bool(context.parameters_behind(differences))


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
