"""GS221: normalisations whose mean and variance are constants to autograd."""

import math
from collections.abc import Iterator
from itertools import combinations
from typing import ClassVar

from gradscope.frozen import dataclass
from gradscope.phrasing import counted
from gradscope.recording.evidence.forward import PathCutRecord
from gradscope.recording.finding import Finding, Severity
from gradscope.recording.records import TensorRef
from gradscope.rules.context import RuleContext
from gradscope.rules.helpers.cuts import call_of, path_cuts
from gradscope.rules.helpers.non_finite.gradient_breaks import forward_inputs, forward_stats
from gradscope.rules.needs import Needs, probe_ran
from gradscope.rules.rule import Lasting, Rule

_SCALES = ("Div", "Mul")
_NEAR, _NEAR_ALONE = 1e-3, 2e-4
"""Largest deviation of a mean square from that of a normalisation: of several results, of one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DetachedNormalisation(Rule):
    """A normalisation is differentiated as if its mean and variance were constants.

    What it finds:
        A normalisation by hand that computes mean and variance of its input without a gradient:
        from `x.detach()`, or under `no_grad`.

    Why it matters:
        The derivative of a normalisation has three terms, of which two are missing. Gradients along
        the mean and the scale of the input pass, although these do not change the result. They make
        the weights before it grow, and the gradients are no longer those of the loss.

    How it is measured:
        Within the forward of a module, a detached value is subtracted from the tensor that it was
        computed from, and the difference is divided by, or multiplied with, a detached value of the
        same tensor, perhaps after a gain. The mean square of the result is 1, or `(n - 1) / n` for
        n elements per mean, up to 0.001, and up to 0.0002 if there is only one result. So running
        statistics are left out, whose results are not exactly normalised.

    How to fix it:
        Compute both from the tensor itself, or use `nn.LayerNorm`, `nn.GroupNorm` or
        `nn.BatchNorm2d`.

    When it may be wrong:
        If the constants are meant, as in a comparison with a normalisation that has its gradient.

    Source:
        Ioffe and Szegedy, "Batch Normalization" (arXiv 1502.03167), section 2: without the
        gradient of the statistics, the weights grow and the loss stays. Xu et al., "Understanding
        and Improving Layer Normalization" (arXiv 1911.07013), on DetachNorm.
    """

    code: ClassVar[str] = "GS221"
    name: ClassVar[str] = "detached-normalisation"
    level: ClassVar[Severity] = "warning"
    lasts: ClassVar[Lasting] = "on"
    judges_learning: ClassVar[bool] = True
    needs: ClassVar[Needs] = (probe_ran("path cuts"), probe_ran("forward"))

    def check(self, context: RuleContext) -> Iterator[Finding]:
        """Yield a finding for every line that detaches the mean of such a normalisation."""
        cuts = list(path_cuts(context))
        for mean, parameters in cuts:
            centred = _centred(context, mean)
            for scale, _ in cuts if centred else ():
                scaled = _scaled(context, scale, centred)
                if not scaled or set(mean.origins).isdisjoint(scale.origins):
                    continue
                if _are_normalised(context, scaled):
                    yield self._finding(context, (mean, scale), parameters, len(scaled))
                    break

    def _finding(
        self,
        context: RuleContext,
        cuts: tuple[PathCutRecord, PathCutRecord],
        parameters: tuple[int, ...],
        results: int,
    ) -> Finding:
        mean, scale = cuts
        others = f" in {counted(results, 'normalisation')}" if results > 1 else ""
        return self.finding(
            context,
            message=(
                f"{call_of(mean)} makes mean and variance constants to autograd{others}: the "
                f"gradients of {counted(len(parameters), 'parameter')} lack two of the three terms "
                "of a normalisation"
            ),
            remedy="compute mean and variance from the tensor itself, with its gradient",
            site=mean.site,
            related=(
                context.related(scale.site, "and the variance here")
                if scale.site != mean.site
                else None,
            ),
            parameters=parameters,
            evidence={"operation": mean.operation, "results": results},
            count=results,
        )


def _centred(context: RuleContext, cut: PathCutRecord) -> dict[int, TensorRef]:
    """Return differences of a tensor and a detached value of it, with the tensor."""
    origins = set(cut.origins)
    found = {}
    for join in cut.joins:
        node = context.recording.nodes[join]
        operands = forward_inputs(context, join)
        # What was detached has no edge.
        is_own = len(operands) == 1 and operands[0] in origins
        if node.operation.startswith("Sub") and node.module_call is not None and is_own:
            found[join] = operands[0]
    return found


def _scaled(
    context: RuleContext, cut: PathCutRecord, centred: dict[int, TensorRef]
) -> tuple[int, ...]:
    """Return the operations that scale such differences by a detached value of the same tensor."""
    origins = set(cut.origins)
    found = []
    for join in cut.joins:
        operands = forward_inputs(context, join)
        if len(operands) != 1 or not _is_scale(context, join):
            continue
        taken = _without_gain(context, operands[0].node)
        if taken in centred and centred[taken] in origins:
            found.append(join)
    return tuple(found)


def _is_scale(context: RuleContext, node: int) -> bool:
    return context.recording.nodes[node].operation.startswith(_SCALES)


def _without_gain(context: RuleContext, node: int) -> int:
    """Return what a parameter multiplies, as in `gain * (x - mean) / std`; else the node itself."""
    operands = forward_inputs(context, node) if _is_scale(context, node) else ()
    others = [ref.node for ref in operands if context.recording.nodes[ref.node].parameter is None]
    return others[0] if len(operands) == 2 and len(others) == 1 else node


def _are_normalised(context: RuleContext, results: tuple[int, ...]) -> bool:
    """Return whether results have the mean square that a normalisation gives them."""
    stats = context.shared(forward_stats)
    limit = _NEAR if len(results) > 1 else _NEAR_ALONE
    for result in results:
        stat = stats.get(TensorRef(node=result, slot=0))
        shape = context.recording.nodes[result].outputs[0]
        if stat is None or shape is None or not stat.numel or stat.nonfinite:
            return False
        square = stat.norm**2 / stat.numel
        sizes = _sizes(shape.dims)
        if not any(abs(square - expected) <= limit for expected in (1, *sizes)):
            return False
    return True


def _sizes(dims: tuple[int, ...]) -> set[float]:
    """Return the mean squares with an unbiased variance over any of some dimensions."""
    # The dimensions of the statistics are not in the graph, since these were detached: any of them
    # may be theirs.
    counts = {
        math.prod(some) for length in range(1, len(dims) + 1) for some in combinations(dims, length)
    }
    return {(count - 1) / count for count in counts if count > 1}
