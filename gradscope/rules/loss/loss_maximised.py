"""GS720: losses whose sign makes the steps enlarge the error."""

import math
from collections.abc import Iterator
from typing import ClassVar

from gradscope.analysis.reach import Reach
from gradscope.frozen import dataclass
from gradscope.recording.evidence.training import OptimizerRecord
from gradscope.recording.finding import Finding, Severity
from gradscope.recording.records import NodeRecord
from gradscope.rules.captured_steps.turns import line_of_loss
from gradscope.rules.context import RuleContext
from gradscope.rules.helpers.attraction import repulsions
from gradscope.rules.helpers.loss.allied_players import allied_players
from gradscope.rules.helpers.loss.binary_likelihoods import minimised_likelihoods
from gradscope.rules.helpers.loss.flow import is_custom
from gradscope.rules.helpers.loss.policy_terms import (
    PolicyTerm,
    is_policy_loss,
    penalised_entropies,
    policy_terms,
    weighs_actions_both_ways,
)
from gradscope.rules.helpers.loss.signed_terms import SignedTerm, signed_terms
from gradscope.rules.helpers.loss.swapped_margins import swapped_margins
from gradscope.rules.helpers.non_finite.gradient_breaks import forward_stats
from gradscope.rules.loss.first_loss import classes_of
from gradscope.rules.rule import Lasting, Rule

_LAYERS = ("Addmm", "Linear", "Mm", "Bmm", "Mv", "Convolution", "Embedding", "NativeLayerNorm")

_TEXT = {
    "error": "error",
    "distance": "distance from the data",
    "log-likelihood": "negative log-likelihood",
    "overlap": "part of the mask that is missed",
    "signal-to-noise ratio": "noise beside the signal",
}

_NEGATE = "put a minus in front of the mean"
_SUBTRACT = "subtract the overlap from 1"


@dataclass(frozen=True, slots=True, kw_only=True)
class LossMaximised(Rule):
    """The loss has the wrong sign: each step enlarges the error.

    What it finds:
        A loss with a minus too many, such as `-mse_loss(output, target)` or an evidence lower bound
        that is negated twice. Also one without its minus, such as the mean of the log-probabilities
        of the correct classes, a binary cross-entropy or focal loss by hand, a normal density, a
        mixture of them, the log-likelihood of a conditional random field, a signal-to-noise ratio,
        or PPO's minimum of two surrogates. Or a Dice coefficient that is not subtracted from 1. And
        a policy loss without its minus, `(log_prob * advantage).mean()`, or with an entropy that is
        added. And a loss that does nothing but reduce the cosine similarity of a network's outputs
        to its own detached outputs, as SimSiam's without its minus. And a term with a minus that
        alone trains a layer, such as a domain classifier's error behind a layer that reverses its
        gradient already. Also a generator that lowers the score of its outputs, as its critic does:
        of a Wasserstein GAN, or by the label of generated data. And a triplet loss whose sides are
        swapped, `relu(d_neg - d_pos + margin)`.

    Why it matters:
        The optimizer moves the weights away from the data. The loss falls without bound, which
        looks like progress.

    How it is measured:
        The terms that are added up in the loss are followed with their signs through sums, means,
        negations and constant factors. An error is a loss function that is 0 for a correct
        prediction, or the square or magnitude of a distance from data. A log-likelihood, such as a
        picked element or the diagonal of a log-softmax, or a log-sigmoid, is the negative of one.
        So is the exponent of a normal density, the negative square of a distance from data over a
        learned variance; a score that was picked, minus the logsumexp of all; and the logsumexp of
        normal densities plus the logarithms of their weights. A signal-to-noise ratio is the
        logarithm of a power over that of a difference. A Dice coefficient is the sum of shares
        within a mask over the sum of both. It is found if at least one error enters with a minus,
        and no term with a plus or an unknown sign. PPO's minimum is found whatever the other terms
        are, and so are log(p) and log(1 - p) of one probability, with weights that are data, or
        larger the less likely the class is: a weight of its own probability makes an entropy. In a
        run, a loss function with a minus beside other terms is a warning if it alone trains layers,
        and no custom function lies between it and them. Layers of the model must be trained, by a
        single optimizer, and in a run by a single backward. A classifier must not be better than
        chance at first: its cross-entropy is at least `least` of ln(C). Two outputs of the model
        may be meant to part. Outside of runs, so may what a generator gets from its discriminator:
        losses of two classes are left alone there. Log-likelihoods may be weighed by costs, and are
        left alone unless all have the same factor, or the source names the factor as a reward, a
        return or an advantage, and shows no minus where it is defined. The entropy of classes is
        the negative sum of probabilities times their logarithms; where it has a plus in such a
        loss, beside picked log-probabilities times numbers of both signs, or beside the surrogates
        of PPO, it is a warning. An optimizer with `maximize=True` is meant to enlarge the loss.

        A triplet loss is a hinge of a difference of two distances that are never below 0, of which
        the source names one as positive (`pos`, `ap`) and the other as negative (`neg`, `an`), or
        torch's own with arguments of such names.

        In a run with several optimizers: one loss has two means of scores with opposite signs, one
        of data and one of what another optimizer's network has generated. The loss of that
        optimizer has such a mean as well, of the same network and with the sign that it has in the
        first loss, in all captured steps of both, two at least. In place of a mean of scores may
        stand their hinge or logistic loss, or their cross-entropy of two classes or squared error,
        with one label for all of them: a label above 1/2 raises the scores. The finding is at the
        critic if it lowers the scores of the data, otherwise at the generator.

    How to fix it:
        Change the sign of the loss, or negate the log-likelihood or the surrogate.

    When it may be wrong:
        If the model is to become wrong, as in unlearning of a regression. If a policy is meant to
        become certain. If a variable that is
        named as a reward holds costs.

    Source:
        Schulman et al. 2017, "Proximal Policy Optimization Algorithms" (arXiv 1707.06347), equation
        7: the minimum is a lower bound of an objective that is maximised. Williams 1992, "Simple
        Statistical Gradient-Following Algorithms": likelihood times reward is one, too.
    """

    code: ClassVar[str] = "GS720"
    name: ClassVar[str] = "loss-maximised"
    level: ClassVar[Severity] = "error"
    lasts: ClassVar[Lasting] = "always"
    judges_learning: ClassVar[bool] = True

    least: float = 0.5
    """Share of ln(C). Chosen: a model that is to unlearn is much better than chance."""

    def skip_reason(self, context: RuleContext) -> str | None:
        """Return why this rule cannot judge the recording."""
        if not context.has_backward:
            return "no backward was recorded"
        if not context.shared(forward_stats):
            return "the values of the forward were not measured"
        if any(one.maximises for one in context.recording.evidence_of(OptimizerRecord)):
            return "the optimizer maximises the loss"
        return (
            None
            if is_policy_loss(context)
            or any(policy_terms(context))
            or weighs_actions_both_ways(context)
            else _opponents(context)
        )

    def in_run(self, context: RuleContext) -> Iterator[Finding]:
        """Yield a finding if a generator and its critic move the same scores the same way."""
        for one in allied_players(context):
            way = "lowers" if one.sign > 0 else "raises"
            name = "critic" if one.is_critics else "generator"
            other = "generator's" if one.is_critics else "critic's own"
            turn, rest = one.generator, one.critic
            if one.is_critics:
                turn, rest = rest, turn
            yield self.finding(
                context,
                message=(
                    f"the {name}'s loss {way} the critic's scores of generated data, as the "
                    f"{other} loss does: they do not oppose each other"
                ),
                remedy=(
                    f"give the {name} the other label of generated data"
                    if one.has_labels
                    else "swap the two means of the critic's loss"
                    if one.is_critics
                    else f"{'put a minus in front of' if one.sign > 0 else 'negate'} the mean score"
                ),
                site=line_of_loss(turn.captured),
                related=(context.related(line_of_loss(rest.captured), "the other loss"),),
                evidence={"terms_enlarged": 1},
                step=turn.captured.step,
            )

    def check(self, context: RuleContext) -> Iterator[Finding]:
        """Yield a finding if the loss is the negative of an error, or for policies' losses."""
        if context.run is not None and not context.recording.evidence_of(OptimizerRecord):
            return  # an update by hand may follow the gradient upwards
        for one in {one.product.site: one for one in policy_terms(context)}.values():
            if one.sign > 0 and _trains(context, one.product):
                yield self._of_policy(context, one)
        if is_policy_loss(context) or weighs_actions_both_ways(context):
            yield from self._of_entropies(context)
        yield from self._of_surrogates(context)
        yield from self._of_triplets(context)
        # The sign of a policy's loss is known whoever else steps. An opponent may want an error to
        # grow.
        if _opponents(context) is None:
            yield from self._of_errors(context)
            yield from self._of_two_classes(context)
            yield from self._of_views(context)
            yield from self._of_opposed_layers(context)

    def _of_policy(self, context: RuleContext, term: PolicyTerm) -> Finding:
        return self.finding(
            context,
            message=(
                f"each step makes actions less likely the larger `{term.reward}` is: "
                "the policy loss has the wrong sign"
            ),
            remedy="put a minus in front of the mean",
            site=term.product.site,
            evidence={"terms_enlarged": 1},
        )

    def _of_entropies(self, context: RuleContext) -> Iterator[Finding]:
        """Yield a finding for each line that makes the entropy of a policy smaller."""
        terms = {one.site: one for one in penalised_entropies(context)}
        for one in terms.values():
            if _trains(context, one):
                yield self.finding(
                    context,
                    message=(
                        "each step makes the policy's entropy smaller: the bonus that should keep "
                        "it exploring has the wrong sign"
                    ),
                    remedy="subtract the entropy from the loss",
                    site=one.site,
                    severity="warning",
                    evidence={"terms_enlarged": len(terms)},
                )

    def _of_surrogates(self, context: RuleContext) -> Iterator[Finding]:
        """Yield a finding if a step makes PPO's minimum of two surrogates smaller."""
        terms = [one for one in signed_terms(context) if one.kind == "lower surrogate"]
        terms = [one for one in terms if one.makes_worse and _trains(context, one.node)]
        if terms:
            yield self.finding(
                context,
                message=(
                    "each step makes the clipped surrogate smaller, which PPO maximises: its sign "
                    "in the loss is wrong"
                ),
                remedy="put a minus in front of the minimum",
                site=terms[0].node.site,
                evidence={"terms_enlarged": len(terms)},
            )

    def _of_triplets(self, context: RuleContext) -> Iterator[Finding]:
        """Yield a finding for each line that draws negatives nearer than positives."""
        margins = {one.hinge.site: one for one in swapped_margins(context)}
        for one in margins.values():
            if _trains(context, one.hinge):
                yield self.finding(
                    context,
                    message=(
                        f"each step makes the distance of `{one.negative}` smaller than that of "
                        f"`{one.positive}`: the sides of the triplet loss are swapped"
                    ),
                    remedy="swap them: relu(positive - negative + margin)",
                    site=one.hinge.site,
                    evidence={"terms_enlarged": len(margins)},
                )

    def _of_errors(self, context: RuleContext) -> Iterator[Finding]:
        terms = list(signed_terms(context))
        # Surrogates have a finding of their own.
        found_elsewhere = ("lower surrogate", "other")
        errors = [one for one in terms if one.kind not in found_elsewhere and one.makes_worse]
        if not errors or not all(one.makes_worse for one in terms):
            return
        errors = [one for one in errors if _trains(context, one.node)]
        if context.run is None and any(one.may_be_adversarial for one in errors):
            return
        shares = [self._share_of_chance(context, one) for one in errors]
        if not errors or any(share is not None and share < self.least for share in shares):
            return
        error = errors[0]
        name = _TEXT[error.kind] if error.comparison is None else error.comparison.operation
        made = error.node.site if error.comparison is None else error.comparison.site
        flip = None if error.flip is None else error.flip.site
        yield self.finding(
            context,
            message=f"the loss makes each step enlarge the {name}: its sign is wrong",
            remedy="negate the loss"
            if error.sign < 0
            else _SUBTRACT
            if error.kind == "overlap"
            else _NEGATE,
            site=made if flip is None else flip,
            related=(context.related(made if flip not in (None, made) else None, "the term"),),
            evidence={"terms_enlarged": len(errors)}
            | ({} if shares[0] is None else {"share_of_chance": shares[0]}),
        )

    def _of_two_classes(self, context: RuleContext) -> Iterator[Finding]:
        """Yield a finding if a step makes the logarithms of both classes smaller."""
        terms = list(minimised_likelihoods(context))
        if terms and any(_trains(context, one) for one in terms):
            yield self.finding(
                context,
                message=(
                    "each step makes log(p) and log(1 - p) smaller: the cross-entropy lacks its "
                    "minus"
                ),
                remedy=_NEGATE,
                site=terms[0].site,
                evidence={"terms_enlarged": len(terms)},
            )

    def _of_views(self, context: RuleContext) -> Iterator[Finding]:
        """Yield a finding if all the loss does is to push a network's outputs from its targets."""
        terms = repulsions(context)
        nodes = [context.recording.nodes[one.result.node] for one in terms]
        if terms and any(_trains(context, one) for one in nodes):
            yield self.finding(
                context,
                message=(
                    "each step makes the network's outputs less similar to their detached targets, "
                    "and nothing else trains it: the sign of the loss is wrong"
                ),
                remedy="negate the loss",
                site=terms[0].site,
                evidence={"terms_enlarged": len(terms)},
            )

    def _of_opposed_layers(self, context: RuleContext) -> Iterator[Finding]:
        """Yield a finding if layers learn from nothing but errors that each step enlarges."""
        terms = list(signed_terms(context))
        worse = [one for one in terms if one.kind == "error" and one.sign < 0]
        rest = [one.node.index for one in terms if one not in worse]
        if context.run is None or not worse or not rest:
            return
        alone = _trained_by_alone(context, worse, rest) & context.run.stepped
        shares = [self._share_of_chance(context, one) for one in worse]
        is_unlearned = any(share is not None and share < self.least for share in shares)
        if is_unlearned or not _has_layers(context, alone):
            return
        first = worse[0]
        name = "error" if first.comparison is None else first.comparison.operation
        yield self.finding(
            context,
            message=(
                f"each step enlarges the {name}, and nothing else trains these layers: its sign is "
                "wrong for them"
            ),
            remedy=(
                "add the term; what lies before these layers works against them through a layer "
                "that reverses the gradient, or through an optimizer of its own"
            ),
            site=first.node.site if first.flip is None else first.flip.site,
            related=(context.related(first.node.site, "the term"),),
            severity="warning",
            parameters=sorted(alone),
            evidence={"terms_enlarged": len(worse), "parameters": len(alone)},
        )

    def _share_of_chance(self, context: RuleContext, term: SignedTerm) -> float | None:
        """Return a classifier's loss over that of equally likely classes; None for others."""
        comparison = term.comparison
        classes = None if comparison is None else classes_of(comparison)
        if comparison is None or classes is None or comparison.reduction != "mean":
            return None
        # The result is a single number, and its minimum is its value.
        stat = context.shared(forward_stats)[comparison.result]
        share = stat.minimum / math.log(classes)
        context.measured(self.code, "share_of_chance", share, self.least, site=comparison.site)
        return share


def _opponents(context: RuleContext) -> str | None:
    """Return why an error may be meant to grow, None if nothing opposes it."""
    optimizers, run = context.recording.evidence_of(OptimizerRecord), context.run
    if len(optimizers) > 1:
        return "several optimizers may oppose each other"
    if run is not None and not optimizers:
        return "the weights are changed without an optimizer"
    if run is not None and not (run.is_only_loss and run.is_stepped):
        return "several backward passes may oppose each other"
    return None


def _trains(context: RuleContext, term: NodeRecord) -> bool:
    """Return whether layers before a term are trained, and not only an input such as a patch."""
    behind = context.parameters_behind([term.index])
    learning = context.shared(Reach).learning if context.run is None else context.run.stepped
    return _has_layers(context, behind & learning)


def _has_layers(context: RuleContext, parameters: frozenset[int]) -> bool:
    """Return whether a layer uses one of some parameters."""
    return any(
        user.operation.startswith(_LAYERS)
        for parameter in parameters
        if parameter in context.parameter_nodes
        for user in context.consumers(context.parameter_nodes[parameter])
    )


def _trained_by_alone(
    context: RuleContext, terms: list[SignedTerm], rest: list[int]
) -> frozenset[int]:
    """Return the parameters that some terms train and the rest do not, by a known gradient."""
    nodes = [one.node.index for one in terms]
    custom = [one.index for one in context.behind(nodes) if is_custom(one)]
    return context.parameters_behind(nodes) - context.parameters_behind([*rest, *custom])
