"""GS736: policy losses of probabilities whose logarithm is missing."""

from collections.abc import Iterator
from typing import ClassVar

from gradscope.analysis.reach import Reach
from gradscope.frozen import dataclass
from gradscope.recording.finding import Finding, Severity
from gradscope.rules.context import RuleContext
from gradscope.rules.helpers.loss.policy_terms import weighed_probabilities
from gradscope.rules.needs import Needs, has_backward, has_forward_values
from gradscope.rules.rule import Lasting, Rule


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbabilityAsLikelihood(Rule):
    """A policy loss weighs the probability of the chosen action, and not its logarithm.

    What it finds:
        A loss such as `-(probs.gather(1, actions) * returns).mean()`, where `actions` were drawn
        from the policy and the logarithm of their probabilities is missing.

    Why it matters:
        The policy gradient has one factor of the probability too many: it nearly ignores good
        actions that are rare, and makes frequent ones more frequent. Nothing fails, and the policy
        settles on what it did at first.

    How it is measured:
        In the graph, a product in the loss's sum of picked elements of one softmax and of a factor
        without a gradient, which the source names as a reward, a return or an advantage, as GS720
        does. Only views and a minus lie between. A factor that is divided, or that is named as a
        weight or a propensity, may correct for the draw, and is left alone. So is a softmax of
        which several elements are weighed by several products: that may be the expectation.

    How to fix it:
        `-(dist.log_prob(action) * returns).mean()`, or `torch.log` of the probabilities.

    When it may be wrong:
        If the actions are not drawn from the policy, but chosen evenly.

    Source:
        Williams 1992, "Simple Statistical Gradient-Following Algorithms"; Sutton and Barto 2018,
        "Reinforcement Learning", section 13.3.
    """

    code: ClassVar[str] = "GS736"
    name: ClassVar[str] = "probability-as-likelihood"
    level: ClassVar[Severity] = "warning"
    lasts: ClassVar[Lasting] = "always"
    judges_learning: ClassVar[bool] = True
    needs: ClassVar[Needs] = (has_backward, has_forward_values)

    def check(self, context: RuleContext) -> Iterator[Finding]:
        """Yield a finding for every line that weighs a probability by a reward."""
        learning = context.shared(Reach).learning if context.run is None else context.run.stepped
        terms = {
            term.product.site: (term, softmax)
            for term, softmax in weighed_probabilities(context)
            if context.parameters_behind([softmax.index]) & learning
        }
        for term, softmax in terms.values():
            yield self.finding(
                context,
                message=(
                    f"the policy loss weighs the probability of an action by `{term.reward}`: its "
                    "logarithm is missing"
                ),
                remedy="take the logarithm: -(log_prob * reward).mean()",
                site=term.product.site,
                related=(
                    context.related(softmax.site, "the probabilities")
                    if softmax.site != term.product.site
                    else None,
                ),
                evidence={"products": len(terms)},
            )
