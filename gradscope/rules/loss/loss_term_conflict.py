"""GS703: terms of the loss with opposite or dominant gradients."""

from collections.abc import Iterator
from typing import ClassVar

from gradscope.frozen import dataclass
from gradscope.phrasing import short, times_text
from gradscope.recording.evidence.batches import LossTermRecord, TermPairRecord
from gradscope.recording.finding import Finding, Severity
from gradscope.rules.context import RuleContext
from gradscope.rules.helpers.flushed_gradients import loss_site
from gradscope.rules.helpers.loss.flow import is_divergence, reduced_terms
from gradscope.rules.measurement import Measure
from gradscope.rules.rule import Lasting, Rule


@dataclass(frozen=True, slots=True, kw_only=True)
class LossTermConflict(Rule):
    """Two terms of the loss have opposite gradients, or one dominates the other.

    What it finds:
        Losses that name their terms, such as `{"loss": …, "recon": …, "kl": …}`, with two terms
        whose gradients oppose each other, or one term so large that another has no effect. Besides,
        in any loss: a Gaussian divergence that is summed over the batch, next to a term that is a
        mean over it (an error).

    Why it matters:
        If two terms oppose each other, most of each gradient is spent on undoing the other, and the
        step is a small difference of large numbers. A term without effect might as well not be
        there. A divergence that is a sum next to a mean outweighs it by the batch size: the encoder
        learns to ignore its input, and the decoder to give the mean of the data.

    How it is measured:
        A backward from each of up to eight terms, times its weight in the loss; cosine and norms of
        each pair of gradients over the parameters that both reach. For the divergence: the graph
        from the sums of the loss down to each reduction, and the gradient that arrives there. It is
        found if both run over the same rows, at least `rows`, and the sum's factor is at least
        `factor` times that of the mean, so that no weight makes up for the batch size. A sum counts
        as a divergence if it was computed elementwise from an exponential and a square of a layer's
        output.

    How to fix it:
        Change the weights of the terms; give tasks that compete weights of their own; or project
        conflicting gradients, as PCGrad does. Divide a sum over the batch by its size.

    When it may be wrong:
        Near the end of training terms oppose each other because they are in balance. Terms may
        oppose each other on purpose, such as a penalty and the term that it limits.

    Source:
        Yu et al. 2020, "Gradient Surgery for Multi-Task Learning" (arXiv 2001.06782); Chen et al.
        2018, "GradNorm" (arXiv 1711.02257).
        Measured: five seeds of a variational autoencoder, two heads, distillation, weight penalty
        and actor-critic at their initialisation: cosine -0.24 and above, ratio of norms up to 3,400
        (an entropy bonus). Two targets of opposite sign: -0.66 at first, -0.97 after 20 steps. A
        variational autoencoder after 300 steps: -0.63 to -0.89.
        zdebruine/MMVAE pull request 19 and wiseodd/generative-models issue 40: a summed divergence
        next to a mean. Factors chosen: 0.5 is that of the closed form of the divergence.
    """

    code: ClassVar[str] = "GS703"
    name: ClassVar[str] = "loss-term-conflict"
    level: ClassVar[Severity] = "note"
    lasts: ClassVar[Lasting] = "on"
    measures: ClassVar[tuple[Measure, ...]] = (
        Measure(number="factor"),
        Measure(number="cosine", limit="cosine_limit", worse="lower"),
        Measure(number="ratio", limit="ratio_limit"),
    )

    cosine: float = -0.5
    """Cosine of the angle between two gradients, -1 to 1; below it they oppose each other
    (measured)."""
    ratio: float = 10_000.0
    """Ratio of two gradient norms; above it the smaller one is negligible (measured)."""

    rows: int = 8
    """Number of rows of a batch, over which a sum and a mean differ by this factor (chosen)."""
    factor: float = 0.25
    """Factor of a summed divergence, over that of a mean beside it (chosen)."""

    def skip_reason(self, context: RuleContext) -> str | None:
        """Return why this rule cannot judge the recording."""
        reason = context.probe_skip_reason("loss terms")
        # Named terms need one probe, and sums beside means another: either is enough to judge.
        return None if reason is None else context.probe_skip_reason("comparisons") and reason

    def check(self, context: RuleContext) -> Iterator[Finding]:
        """Yield a finding for every pair of terms, and for a sum beside a mean."""
        yield from self._unequal_reductions(context)
        terms = context.recording.evidence_of(LossTermRecord)
        for pair in context.recording.evidence_of(TermPairRecord):
            subject = f"{terms[pair.first].name} and {terms[pair.second].name}"
            context.measured(
                self.code, "cosine", pair.cosine, self.cosine, fires="below", subject=subject
            )
            context.measured(self.code, "ratio", _ratio(pair), self.ratio, subject=subject)
            if pair.cosine < self.cosine:
                yield self._opposed(context, pair, terms)
            elif _ratio(pair) > self.ratio:
                yield self._drowned(context, pair, terms)

    def _unequal_reductions(self, context: RuleContext) -> Iterator[Finding]:
        """Yield a finding for a divergence that is summed over the batch beside a mean."""
        terms = tuple(reduced_terms(context))
        for one in terms:
            means = [
                other
                for other in terms
                if other.is_mean and other.rows == one.rows and other.factor > 0
            ]
            if one.is_mean or one.rows < self.rows or not is_divergence(context, one.node):
                continue
            # The mean with the largest factor is the most lenient comparison.
            beside = min(means, key=lambda other: one.factor / other.factor, default=None)
            if beside is None:
                continue
            found = one.factor / beside.factor
            context.measured(self.code, "factor", found, self.factor, site=one.node.site)
            if found < self.factor:
                continue
            yield self.finding(
                context,
                message=(
                    f"this divergence is a sum over the {one.rows} rows of the batch, and is added "
                    f"to a mean over them: it counts {one.rows} times as much"
                ),
                remedy="divide the sum by the number of rows, as in `kl.sum(dim=1).mean()`",
                site=one.node.site,
                related=(context.related(beside.node.site, "the mean"),),
                severity="error",
                evidence={"rows": one.rows, "factor": found, "limit": self.factor},
            )

    def _opposed(
        self, context: RuleContext, pair: TermPairRecord, terms: tuple[LossTermRecord, ...]
    ) -> Finding:
        first, second = terms[pair.first], terms[pair.second]
        return self._finding(
            context,
            pair,
            terms=(first, second),
            message=f"the gradients of {first.name} and {second.name} oppose each other: their "
            f"cosine is {pair.cosine:.2f} over {len(pair.parameters)} shared parameters",
            remedy=f"change the weights of {first.name} and {second.name}, or give each its own "
            "parameters",
            limit=("cosine_limit", self.cosine),
        )

    def _drowned(
        self, context: RuleContext, pair: TermPairRecord, terms: tuple[LossTermRecord, ...]
    ) -> Finding:
        large, small = terms[pair.first], terms[pair.second]
        if pair.first_norm < pair.second_norm:
            large, small = small, large
        return self._finding(
            context,
            pair,
            terms=(small, large),
            message=f"{small.name} is negligible compared with {large.name}, whose gradient is "
            f"{times_text(_ratio(pair))} as large",
            remedy=f"raise the weight of {small.name}, which is {short(small.weight)}, or remove "
            f"the "
            "term",
            limit=("ratio_limit", self.ratio),
        )

    def _finding(
        self,
        context: RuleContext,
        pair: TermPairRecord,
        *,
        terms: tuple[LossTermRecord, LossTermRecord],
        message: str,
        remedy: str,
        limit: tuple[str, float],
    ) -> Finding:
        first, second = terms
        site = context.site(first.site) or context.site(second.site) or loss_site(context)
        other = context.site(second.site)
        return self.finding(
            context,
            message=message,
            remedy=remedy,
            site=site,
            related=(
                context.related(other, f"{second.name} is computed here")
                if other != site
                else None,
            ),
            parameters=pair.parameters,
            evidence={
                "cosine": pair.cosine,
                "ratio": _ratio(pair),
                limit[0]: limit[1],
                f"norm_{first.name}": first.norm,
                f"norm_{second.name}": second.norm,
            },
            cause=" and ".join(sorted((first.name, second.name))),
        )


def _ratio(pair: TermPairRecord) -> float:
    """Return the larger norm over the smaller; 0 if one is zero or NaN."""
    # A term without any gradient is not drowned: that is another mistake.
    low, high = sorted((pair.first_norm, pair.second_norm))
    return high / low if low > 0 else 0.0
