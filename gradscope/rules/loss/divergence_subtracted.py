"""GS727: divergences from a prior that are subtracted from the loss."""

from collections.abc import Iterator, Mapping
from typing import ClassVar

from gradscope.frozen import dataclass
from gradscope.recording.evidence.training import OptimizerRecord
from gradscope.recording.finding import Finding, Severity
from gradscope.recording.records import NodeRecord
from gradscope.rules.context import RuleContext
from gradscope.rules.helpers.loss.linear_ways import linear_signs, stat_of
from gradscope.rules.helpers.loss.log_scales import log_scales
from gradscope.rules.helpers.non_finite.gradient_breaks import forward_stats
from gradscope.rules.rule import Lasting, Rule


@dataclass(frozen=True, slots=True, kw_only=True)
class DivergenceSubtracted(Rule):
    """A divergence from a normal distribution is subtracted from the loss, which has no minimum.

    What it finds:
        `loss = reconstruction - beta * kl` of a variational autoencoder, or a divergence whose own
        minus was forgotten: `0.5 * (1 + log_var - mean**2 - log_var.exp())`.

    Why it matters:
        Each step drives the codes away from the prior. The loss falls without bound, the means
        explode, and samples from the prior decode to nothing that looks like the data.

    How it is measured:
        The loss is followed with its signs through sums, means, negations and constant factors. It
        contains a positive tensor with a minus, the logarithm of the same tensor with a plus, and a
        square with a minus: these are the terms of a divergence between normal distributions, each
        with the wrong sign. The finding points to the minus in front of the whole divergence, if
        there is one. A single optimizer trains, and does not maximise. There is no threshold.

    How to fix it:
        Add the divergence: `reconstruction + beta * kl`, with
        `kl = -0.5 * (1 + log_var - mean**2 - log_var.exp())`.

    When it may be wrong:
        If distributions are meant to part.

    Source:
        Kingma and Welling 2014, "Auto-Encoding Variational Bayes" (arXiv 1312.6114), appendix B.
    """

    code: ClassVar[str] = "GS727"
    name: ClassVar[str] = "divergence-subtracted"
    level: ClassVar[Severity] = "error"
    lasts: ClassVar[Lasting] = "always"
    judges_learning: ClassVar[bool] = True

    def skip_reason(self, context: RuleContext) -> str | None:
        """Return why this rule cannot judge the recording."""
        if not context.has_backward:
            return "no backward was recorded"
        if not context.shared(forward_stats):
            return "the values of the forward were not measured"
        optimizers = context.recording.evidence_of(OptimizerRecord)
        if any(one.maximises for one in optimizers):
            return "the optimizer maximises the loss"
        return "several optimizers may oppose each other" if len(optimizers) > 1 else None

    def check(self, context: RuleContext) -> Iterator[Finding]:
        """Yield a finding for the first divergence with a minus."""
        loss = linear_signs(context, [one.index for one in context.first.nodes if one.depth == 0])
        # A square alone may be outputs that are pushed apart, and a logarithm alone an entropy.
        square = _square(context, loss)
        if square is None:
            return
        for one in log_scales(context, loss):
            if one.sign > 0 and loss.get(one.scale) == -1:
                made = context.recording.nodes[one.scale].site
                formula = square.site if made is None else made
                minus = _minus(context, loss, (one.scale, square.index))
                site = formula if minus is None else minus
                yield self.finding(
                    context,
                    message=(
                        "a divergence from a normal distribution is subtracted from the loss: each "
                        "step enlarges it, and the loss has no minimum"
                    ),
                    remedy="add the divergence to the loss, with the sign that makes it positive: "
                    "-0.5 * (1 + log_var - mean**2 - log_var.exp())",
                    site=site,
                    related=(
                        context.related(formula if formula != site else None, "the divergence"),
                        context.related(
                            square.site if square.site not in (site, formula) else None,
                            "the square of the means",
                        ),
                    ),
                    parameters=sorted(context.parameters_behind([one.scale])),
                    evidence={"divergences_subtracted": 1},
                )
                return


def _minus(context: RuleContext, loss: Mapping[int, int], terms: tuple[int, int]) -> int | None:
    """Return the line that subtracts a divergence as a whole; None if its own signs are wrong."""
    found = [
        index
        for index, sign in loss.items()
        if sign < 0 and all(linear_signs(context, [index]).get(one) == 1 for one in terms)
    ]
    nearest = min(found, key=lambda index: context.recording.nodes[index].depth, default=None)
    users = () if nearest is None else context.users.get(nearest, ())
    sites = (context.recording.nodes[user].site for user in users if loss.get(user) == 1)
    return next((site for site in sites if site is not None), None)


def _square(context: RuleContext, loss: Mapping[int, int]) -> NodeRecord | None:
    """Return a square that a step enlarges, None without one."""
    for index, sign in loss.items():
        node, stat, inputs = (
            context.recording.nodes[index],
            stat_of(context, index),
            context.inputs(index),
        )
        # `mean ** 2` leaves a power, `mean * mean` a product of one node with itself.
        is_product = node.operation == "MulBackward0" and len(inputs) == 2
        is_square = node.operation.startswith("Pow") or (is_product and len(set(inputs)) == 1)
        # An exponent is not recorded: a cube would be of either sign.
        if sign < 0 and is_square and stat is not None and stat.minimum >= 0:
            return node
    return None
