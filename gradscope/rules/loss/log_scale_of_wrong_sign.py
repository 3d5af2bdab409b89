"""GS724: log-scales that enter the loss with the wrong sign."""

from collections.abc import Iterator, Mapping
from typing import ClassVar

from gradscope.frozen import dataclass
from gradscope.recording.evidence.training import OptimizerRecord
from gradscope.recording.finding import Finding, Severity
from gradscope.rules.context import RuleContext
from gradscope.rules.helpers.loss.linear_ways import linear_signs
from gradscope.rules.helpers.loss.log_scales import LogScale, Scaled, log_scales, scaled_by
from gradscope.rules.needs import Needs, has_backward, has_forward_values
from gradscope.rules.rule import Lasting, Rule


@dataclass(frozen=True, slots=True, kw_only=True)
class LogScaleOfWrongSign(Rule):
    """A logarithm that should balance a learned scale enters the loss with the wrong sign.

    What it finds:
        A normalising flow whose log-determinant has the wrong sign, as in
        `loss = -(log_prob - log_det).mean()`, or a layer that multiplies by `exp(-s)` and returns
        `s.sum()`. Also a Gaussian likelihood or a learned weight of a task,
        `exp(-s) * error - s`. And a flow whose log-likelihood is the loss, without a minus.

    Why it matters:
        The distance and the logarithm now pull the scale the same way. The loss falls without
        bound while a flow shrinks all data to a point, or while the weight of a task goes to 0.

    How it is measured:
        The loss is followed with its signs through sums, means, negations and constant factors to
        `s`, or to `log(v)`. The tensor `exp(s)`, or `v`, multiplies or divides a tensor that goes
        into a square, a magnitude or an error of the same loss, through sums, parts, further
        factors and linear layers that keep the shape alone; or it multiplies such an error. It is
        found if a larger scale makes both parts of the loss larger, or both smaller. There is no
        threshold. A log-likelihood is found if with the opposite sign a scale that multiplies would
        balance a distance, one optimizer steps, and no other backward opposes it.

    How to fix it:
        Add the log-determinant to the log-likelihood, and subtract both from the loss:
        `-(log_prob + log_det)`. A layer that multiplies by `exp(s)` has `+s.sum()`, one by
        `exp(-s)` has `-s.sum()`.

    When it may be wrong:
        If the logarithm of a scale is a penalty that is meant to shrink it.

    Source:
        Dinh et al. 2017, "Density estimation using Real NVP" (arXiv 1605.08803), equations 3 and 6.
        Kendall and Gal 2017, "What Uncertainties Do We Need in Bayesian Deep Learning for Computer
        Vision?" (arXiv 1703.04977), equation 8.
    """

    code: ClassVar[str] = "GS724"
    name: ClassVar[str] = "log-scale-of-wrong-sign"
    level: ClassVar[Severity] = "error"
    lasts: ClassVar[Lasting] = "always"
    judges_learning: ClassVar[bool] = True
    needs: ClassVar[Needs] = (has_backward, has_forward_values)

    def check(self, context: RuleContext) -> Iterator[Finding]:
        """Yield a finding for every line that makes such a logarithm."""
        loss = linear_signs(context, [one.index for one in context.first.nodes if one.depth == 0])
        # Without its minus, a likelihood has the wrong sign in all terms, so that none contradicts
        # another.
        found = list(_wrong(context, loss))
        if not found:
            yield from self._of_likelihood(context, loss)
            return
        scale, scaled = found[0]
        turned = _turned(context, loss, scale.term)
        made = context.recording.nodes[scale.term].site
        # The line that turns the sign is to be changed. Without one, the layer returns the wrong
        # sign.
        site = next((one for one in (turned, made, scaled.node.site) if one is not None), None)
        grows = scaled.sign > 0
        yield self.finding(
            context,
            message=(
                "the log-scale enters the loss with the wrong sign: it makes the loss smaller the "
                f"{'smaller' if grows else 'larger'} the scale is, and so does the "
                f"{'distance' if scaled.node is not scaled.end else 'error'} that it scales"
            ),
            remedy=(
                "change the sign of the logarithm: the loss of a flow is -(log_prob + log_det)"
            ),
            site=site,
            related=(
                context.related(made if made != site else None, "the logarithm"),
                context.related(
                    scaled.node.site if scaled.node.site not in (site, made) else None,
                    "the scale is used",
                ),
            ),
            parameters=sorted(context.parameters_behind([scale.scale])),
            evidence={"log_scales_of_wrong_sign": len({one.term for one, _ in found})},
        )

    def _of_likelihood(self, context: RuleContext, loss: Mapping[int, int]) -> Iterator[Finding]:
        """Yield a finding if the loss is a flow's log-likelihood, whose minus is missing."""
        is_alone = context.run is None or (context.run.is_only_loss and context.run.is_stepped)
        optimizers = context.recording.evidence_of(OptimizerRecord)
        if not is_alone or len(optimizers) > 1 or any(one.maximises for one in optimizers):
            return
        scales = list(_of_likelihood(context, {node: -sign for node, sign in loss.items()}))
        if scales:
            # Nothing in the loss has another sign than the rest: its last line lacks the minus.
            site = next(node.site for node in context.first.nodes if node.depth == 0)
            yield self.finding(
                context,
                message=(
                    "the loss is the log-likelihood of a flow without its minus: each step makes "
                    "the data less likely"
                ),
                remedy="loss = -(log_prob + log_det).mean()",
                site=site,
                related=(
                    context.related(context.recording.nodes[scales[0].term].site, "a logarithm"),
                ),
                parameters=sorted(context.parameters_behind([one.scale for one in scales])),
                evidence={"log_scales_of_wrong_sign": len(scales)},
            )


def _of_likelihood(context: RuleContext, negated: Mapping[int, int]) -> Iterator[LogScale]:
    """Yield the scales that would balance a distance if the loss had the opposite sign.

    Only those that multiply, as in a flow: the entropy of a policy, which divides by a deviation,
    is a log-likelihood with a plus.
    """
    for one in log_scales(context, negated):
        uses = list(scaled_by(context, negated, one.scale))
        if uses and one.sign < 0 and all(use.sign > 0 for use in uses):
            yield one
        # One scale that does not balance a distance shows that the loss is no likelihood of a flow.
        elif uses:
            return


def _wrong(context: RuleContext, loss: Mapping[int, int]) -> Iterator[tuple[LogScale, Scaled]]:
    """Yield the scales that draw both parts of the loss the same way, and nothing else."""
    for one in log_scales(context, loss):
        uses = list(scaled_by(context, loss, one.scale))
        # A scale with a use that balances its logarithm is held there.
        if uses and all(use.sign == one.sign for use in uses):
            yield one, uses[0]


def _turned(context: RuleContext, loss: Mapping[int, int], term: int) -> int | None:
    """Return the first line between a term and the loss that changes its sign, None without one."""
    waiting, seen = [term], {term}
    while waiting:
        index = waiting.pop(0)
        for user in context.users.get(index, ()):
            if user in loss and user not in seen:
                if loss[user] * loss[index] < 0:
                    return context.recording.nodes[user].site
                seen.add(user)
                waiting.append(user)
    return None
