"""GS737: models that should predict a noise that their input does not hold."""

from collections.abc import Iterator
from typing import ClassVar

from gradscope.frozen import dataclass
from gradscope.recording.evidence.forward import FreshTargetRecord
from gradscope.recording.finding import Finding, Severity
from gradscope.rules.context import RuleContext
from gradscope.rules.needs import Needs, probe_ran
from gradscope.rules.rule import Lasting, Rule


@dataclass(frozen=True, slots=True, kw_only=True)
class NoiseDrawnAnew(Rule):
    """A model is to predict noise that is drawn anew, and not the noise in its input.

    What it finds:
        `noise = torch.randn_like(x)`, `x_t = a * x + b * torch.randn_like(x)` and
        `mse_loss(model(x_t, t), noise)`, as of a diffusion model whose function that adds noise is
        not given the noise. Also a flow whose target `x - noise` has another noise than its input.

    Why it matters:
        Nothing tells the model the target, so it learns to predict the mean, which is 0. The loss
        goes to 1 and stays there, and the samples are noise.

    How it is measured:
        The target of a regression, or what is subtracted from a prediction, is the result of
        `randn_like` or `randn(x.shape)`, or its difference from data, and no other operation uses
        it. Another such result with the same shape is added to data outside of the graph. A draw
        whose shape is written out may stand in for data, and is left alone. There is no threshold.

    How to fix it:
        Add the noise to the data that the loss compares with: `x_t = a * x + b * noise`.

    When it may be wrong:
        If random numbers stand in for data in a trial, and noise is added to the input as well.

    Source:
        Ho et al. 2020, "Denoising Diffusion Probabilistic Models" (arXiv 2006.11239), algorithm 1.
    """

    code: ClassVar[str] = "GS737"
    name: ClassVar[str] = "noise-drawn-anew"
    level: ClassVar[Severity] = "warning"
    lasts: ClassVar[Lasting] = "on"
    needs: ClassVar[Needs] = (probe_ran("comparisons"),)

    def check(self, context: RuleContext) -> Iterator[Finding]:
        """Yield a finding for every line that compares with such a target."""
        records = context.recording.evidence_of(FreshTargetRecord)
        for one in {record.site: record for record in records}.values():
            yield self.finding(
                context,
                message=(
                    "the target is noise that was drawn anew and that nothing else uses: the "
                    "input holds another draw, so there is nothing to learn"
                ),
                remedy="compare with the noise that was added to the input",
                site=one.site,
                related=(context.related(one.noise, "other noise is added here"),),
                evidence={"is_used": False},
            )
