"""GS712: gradient penalties over parts of an example's gradient."""

from collections.abc import Iterator
from typing import ClassVar

from gradscope.frozen import dataclass
from gradscope.phrasing import short
from gradscope.recording.evidence.forward import PartialNormRecord
from gradscope.recording.finding import Finding, Severity
from gradscope.rules.context import RuleContext
from gradscope.rules.needs import Needs, probe_ran
from gradscope.rules.rule import Rule


@dataclass(frozen=True, slots=True, kw_only=True)
class PenaltyOfParts(Rule):
    """A gradient penalty takes norms over a part of each example's gradient.

    What it finds:
        A penalty such as `((gradient.norm(2, dim=1) - 1) ** 2).mean()` on the gradient of a critic
        with respect to images or sequences: the norm is over the channels, one per pixel, and not
        over all elements of an example.

    Why it matters:
        Every pixel's gradient is pushed towards a norm of 1. The norm of the whole gradient is then
        the square root of the number of pixels, where it should be 1, and the critic is not
        1-Lipschitz.

    How it is measured:
        The result of an `autograd.grad` with `create_graph`, of one number per example, is followed
        to its norm, or to the root of a sum of squares, and to a difference from a number other
        than 0. It is found if there are more norms than examples.

    How to fix it:
        `gradient.flatten(1).norm(2, dim=1)`.

    When it may be wrong:
        If each position is meant to have a gradient of this norm. The rule skips outputs with
        several numbers per example, such as a distance field at many points.

    Source:
        Gulrajani et al. 2017, "Improved Training of Wasserstein GANs" (arXiv 1704.00028), equation
        3: the norm of the gradient with respect to the whole example.
    """

    code: ClassVar[str] = "GS712"
    name: ClassVar[str] = "penalty-of-parts"
    level: ClassVar[Severity] = "warning"
    needs: ClassVar[Needs] = (probe_ran("derivatives"),)

    def check(self, context: RuleContext) -> Iterator[Finding]:
        """Yield a finding for every line with such a penalty."""
        by_line = {one.site: one for one in context.recording.evidence_of(PartialNormRecord)}
        for site, one in by_line.items():
            parts = one.norms // one.examples
            yield self.finding(
                context,
                message=(
                    f"the gradient penalty takes {parts:,} norms per example, of a gradient of "
                    f"shape {list(one.shape)}: at its minimum the whole gradient has a norm of "
                    f"{short(parts**0.5)} times the limit"
                ),
                remedy="take the norm over all elements of an example: gradient.flatten(1).norm(2, "
                "dim=1)",
                site=site,
                evidence={"norms_per_example": parts, "limit": 1},
                count=parts,
            )
