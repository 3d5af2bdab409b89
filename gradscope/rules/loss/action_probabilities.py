"""GS716 and GS736: probabilities of actions without a logarithm, and ratios that are always 1."""

from collections.abc import Iterator
from typing import ClassVar

from gradscope.analysis.reach import Reach
from gradscope.analysis.windows import Windows
from gradscope.frozen import dataclass
from gradscope.recording.events import UnitRatioEvent, only
from gradscope.recording.finding import Finding, Severity
from gradscope.rules.context import RuleContext
from gradscope.rules.helpers.loss.policy_terms import weighed_probabilities
from gradscope.rules.needs import Needs, has_backward, has_forward_values, has_step
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


@dataclass(frozen=True, slots=True, kw_only=True)
class RatioAlwaysOne(Rule):
    """The ratio of new and old probabilities is always 1, although the same data train again.

    What it finds:
        A loss of PPO whose old log-probabilities are computed again before each step, and so are
        those of the current policy.

    Why it matters:
        The clip of the ratio never acts: nothing holds the policy near the one that has made the
        data. Repeated steps on the same data move it as far as they like, and training becomes
        unstable.

    How it is measured:
        In captured steps, the exponential of a difference is 1 in each element. What is subtracted
        was computed without gradient, and not detached from the other. The exponential is clamped,
        and multiplied by a tensor such as the advantages, of at least eight different numbers. In
        two steps at least half of these numbers are those of earlier captured steps: the same data
        train again. No captured step has another ratio at this line. Steps that train on new data
        each have a ratio of 1 for good reason.

    How to fix it:
        Store the log-probabilities when the data are made, and use these in all epochs.

    When it may be wrong:
        If another optimizer makes the steps in between and the policy does not move.

    Source:
        Schulman et al. 2017, "Proximal Policy Optimization Algorithms" (arXiv 1707.06347), section
        3: the old parameters are those before the update.
    """

    code: ClassVar[str] = "GS716"
    name: ClassVar[str] = "ratio-always-one"
    level: ClassVar[Severity] = "warning"
    needs_run: ClassVar[bool] = True
    needs: ClassVar[Needs] = (has_step,)

    def check(self, context: RuleContext) -> Iterator[Finding]:
        """Yield a finding for every line with such a ratio."""
        for event in only(UnitRatioEvent, context.shared(Windows).events):
            yield self.finding(
                context,
                message=(
                    "the ratio of new and old probabilities is 1 in every captured step, although "
                    f"{event.reuses} of them train on data of an earlier one: the old ones are of "
                    "the current policy, and a clip of the ratio never acts"
                ),
                remedy="store the log-probabilities when the data are made, and use them in all "
                "epochs",
                site=event.site,
                evidence={"ratios": event.elements, "steps_on_known_data": event.reuses},
                count=event.elements,
                step=event.step,
            )
