"""GS732: terms that the model computes and the loss does not contain."""

from collections.abc import Iterator
from typing import ClassVar

from gradscope.frozen import dataclass
from gradscope.recording.evidence.forward import LeftOutTermRecord
from gradscope.recording.finding import Finding, Severity
from gradscope.rules.context import RuleContext
from gradscope.rules.needs import Needs, has_backward, probe_ran
from gradscope.rules.rule import Lasting, Rule


@dataclass(frozen=True, slots=True, kw_only=True)
class TermLeftOut(Rule):
    """The model computes a term of the loss, and the loss does not contain it.

    What it finds:
        A number with a gradient that a module returns beside its output, or keeps in an attribute,
        and that is never added to the loss: the balance of a mixture of experts, the commitment of
        a quantizer, a penalty.

    Why it matters:
        The term has no effect. Experts that no token chooses stay unused, encoders drift away from
        their codes, and nothing shows it but the result.

    How it is measured:
        A tensor of one number has a graph, was made in the forward, and no path leads from the loss
        to it. Its attribute or variable is named as a term: `aux`, `balance`, `commit`, `penalty`,
        `regularization`, `sparsity`, or with `loss` at one end. This holds in every captured step
        of a run with a single loss.

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
        # The loss is where the term is missing.
        loss = context.first.nodes[0].site if context.first.nodes else None
        for record in context.recording.evidence_of(LeftOutTermRecord):
            yield self.finding(
                context,
                message=(
                    f"{record.name} is computed with a gradient, but the loss does not contain it"
                ),
                remedy=f"add {record.name} to the loss, or compute it under no_grad",
                site=loss,
                related=(context.related(record.site, "it is computed here"),),
                evidence={"term": record.name},
            )
