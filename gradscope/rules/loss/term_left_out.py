"""GS732: terms that the model computes and the loss does not contain."""

from collections.abc import Iterator
from typing import ClassVar

from gradscope.frozen import dataclass
from gradscope.recording.evidence.forward import LeftOutTermRecord, PathCutRecord
from gradscope.recording.finding import Finding, Severity
from gradscope.recording.records import NodeRecord
from gradscope.rules.context import RuleContext
from gradscope.rules.helpers.loss.gains import shifts_by_normal_constant
from gradscope.rules.helpers.loss.linear_ways import linear_signs, signs_of, stat_of
from gradscope.rules.needs import Needs, has_backward, probe_ran
from gradscope.rules.rule import Lasting, Rule

_ADD = "add {name} to the loss, or compute it under no_grad"
_TEXTS = {
    None: ("{name} is computed with a gradient, but the loss does not contain it", _ADD),
    "unread": ("{name} is computed with a gradient, but nothing reads it", _ADD),
    "replaced": (
        "the term that is assigned to {name} here is lost: the loss replaces it before anything "
        "reads it",
        "add the two: `{name} = {name} + …`",
    ),
    "discarded": (
        "the result of this sum is lost: {name} stays as it was",
        "assign it: `{name} = {name} + …`",
    ),
}
"""Message and remedy, by how the term is lost."""
_SCALES = ("ExpBackward", "SigmoidBackward", "SoftplusBackward")
_CARRIES = (
    "Add",
    "Cat",
    "Clone",
    "CopySlices",
    "Flip",
    "Index",
    "Mul",
    "Slice",
    "Split",
    "Stack",
    "Sub",
    "Where",
)
"""Operations that carry what a layer of a flow has scaled to the next one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TermLeftOut(Rule):
    """The model computes a term of the loss, and the loss does not contain it.

    What it finds:
        A number with a gradient that a module returns beside its output, or keeps in an attribute,
        and that is never added to the loss: the balance of a mixture of experts, the commitment of
        a quantizer, a penalty. Also a term that the statements around the loss drop: a later
        assignment replaces it, as in `loss = kl` and then `loss = error`; no variable takes the
        sum, as in `loss + penalty`; or nothing reads its variable. And a normalising flow whose
        loss lacks the log-determinant.

    Why it matters:
        The term has no effect. Experts that no token chooses stay unused, encoders drift away from
        their codes, and nothing shows it but the result.

    How it is measured:
        A tensor of one number has a graph, was made in the forward, and no path leads from the loss
        to it. Its attribute or variable is named as a term: `aux`, `balance`, `commit`, `penalty`,
        `regularization`, `sparsity`, or with `loss` at one end, and `kl` beside the statement that
        makes the loss, where nothing else in the function may read the variable. There the source
        also shows what is replaced or not assigned. This holds in every captured step
        of a run with a single loss.

        For a flow, the whole loss is the negative logarithm of a standard normal density, known by
        its constant, of a tensor that positive factors have scaled.

    How to fix it:
        Add the term to the loss. If it is only logged, compute it under `torch.no_grad()`.

    When it may be wrong:
        If the loss computes the same term again by itself, or contains it only later in training.

    Source:
        Fedus et al. 2021, "Switch Transformers" (arXiv 2101.03961), section 2.2: without the
        auxiliary loss the load is not balanced. van den Oord et al. 2017, "Neural Discrete
        Representation Learning" (arXiv 1711.00937), section 3.2.
    """

    code: ClassVar[str] = "GS732"
    name: ClassVar[str] = "term-left-out"
    level: ClassVar[Severity] = "warning"
    lasts: ClassVar[Lasting] = "always"
    judges_learning: ClassVar[bool] = True
    needs: ClassVar[Needs] = (has_backward, probe_ran("left-out terms"))

    def check(self, context: RuleContext) -> Iterator[Finding]:
        """Yield a finding for each term."""
        if context.run is not None and not context.run.is_only_line:
            return  # another loss may contain it
        yield from self._of_flow(context)
        # The loss is where the term is missing.
        loss = context.first.nodes[0].site if context.first.nodes else None
        for record in context.recording.evidence_of(LeftOutTermRecord):
            message, remedy = _TEXTS[record.way]
            is_at_loss = record.way in (None, "unread")
            yield self.finding(
                context,
                message=message.format(name=record.name),
                remedy=remedy.format(name=record.name),
                site=loss if is_at_loss else record.site,
                related=(
                    context.related(record.site, "it is computed here")
                    if is_at_loss
                    else context.related(loss, "the loss"),
                ),
                evidence={"term": record.name},
            )

    def _of_flow(self, context: RuleContext) -> Iterator[Finding]:
        """Yield a finding for the density of a flow without its log-determinant."""
        scaled = _unbalanced_scale(context)
        if scaled is not None:
            cut = _cut_logarithm(context, scaled)
            lack = "without the logarithm of the scale"
            if cut is not None:
                lack = "and the logarithm of the scale has no gradient"
            yield self.finding(
                context,
                message=(
                    f"the loss is the density of what a flow has scaled, {lack}: it is smallest "
                    "where all data shrink to a point"
                ),
                remedy=(
                    "add the log-determinant: -(log_prob + log_det).mean()"
                    if cut is None
                    else "compute the log-determinant with its gradient"
                ),
                site=context.first.nodes[0].site if cut is None else cut.site,
                related=(context.related(scaled.site, "the last scale"),),
                parameters=sorted(context.parameters_behind([scaled.index])),
                evidence={"term": "the log-determinant"},
            )


def _unbalanced_scale(context: RuleContext) -> NodeRecord | None:
    """Return the last scale of data that only the square of a standard normal density sees.

    Its minimum is a scale of 0: nothing else in the loss holds it. None for any other loss.
    """
    loss = linear_signs(context, [one.index for one in context.first.nodes if one.depth == 0])
    ends = [one for one in loss if not signs_of(context, one)]
    squared = [one for one in ends if context.recording.nodes[one].operation == "PowBackward0"]
    # A further term, such as the logarithm of a scale, may hold it.
    if len(ends) != 1 or not squared or loss[squared[0]] <= 0:
        return None
    if not any(shifts_by_normal_constant(context, context.recording.nodes[one]) for one in loss):
        return None
    return next(_scales_before(context, _unshifted(context, context.inputs(squared[0])[0])), None)


def _cut_logarithm(context: RuleContext, scaled: NodeRecord) -> PathCutRecord | None:
    """Return the cut behind which a term of the loss was made of the scale's own parameters.

    It is the logarithm, most likely: computed, and added without a gradient.
    """
    loss = linear_signs(context, [one.index for one in context.first.nodes if one.depth == 0])
    own = context.parameters_behind([scaled.index])
    for cut in context.recording.evidence_of(PathCutRecord):
        if own.intersection(cut.parameters) and any(join in loss for join in cut.joins):
            return cut
    return None


def _unshifted(context: RuleContext, node: int) -> int | None:
    """Return what a mean of 0 is subtracted from; None for another mean, such as a target."""
    inputs = context.inputs(node)
    if context.recording.nodes[node].operation != "SubBackward0":
        return node
    before = stat_of(context, inputs[0]) if len(inputs) == 1 else None
    after = stat_of(context, node)
    if before is None or after is None:
        return None
    is_same = (before.minimum, before.maximum) == (after.minimum, after.maximum)
    return inputs[0] if is_same else None


def _scales_before(context: RuleContext, start: int | None) -> Iterator[NodeRecord]:
    """Yield the positive factors of what a tensor is put together of."""
    waiting = [] if start is None else [start]
    seen = set(waiting)
    while waiting:
        node = context.recording.nodes[waiting.pop(0)]
        inputs = context.inputs(node.index)
        for one in inputs if node.operation == "MulBackward0" else ():
            factor = context.recording.nodes[one]
            if factor.operation.startswith(_SCALES) and not _is_balanced(context, factor):
                yield node
        if node.kind == "view" or node.operation.startswith(_CARRIES):
            fresh = [one for one in inputs if one not in seen]
            seen.update(fresh)
            waiting += fresh


def _is_balanced(context: RuleContext, scale: NodeRecord) -> bool:
    """Return whether the logarithms of a scale add up to 0, so that volumes stay the same."""
    exponent = context.recording.nodes[context.inputs(scale.index)[0]]
    parts = [context.recording.nodes[one] for one in context.inputs(exponent.index)]
    return exponent.operation == "SubBackward0" and any(
        one.operation.startswith("MeanBackward") for one in parts
    )
