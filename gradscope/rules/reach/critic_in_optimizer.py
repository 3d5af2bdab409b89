"""GS222: a generator's or an actor's optimizer that also steps the network that judges it."""

from collections.abc import Iterator
from typing import ClassVar

from gradscope.frozen import dataclass
from gradscope.phrasing import counted
from gradscope.recording.finding import Finding, Severity
from gradscope.recording.records import CapturedStep
from gradscope.rules.captured_steps.training import Stepper
from gradscope.rules.captured_steps.turns import Turn, turns_of
from gradscope.rules.context import RuleContext
from gradscope.rules.rule import Rule


@dataclass(frozen=True, slots=True, kw_only=True)
class CriticInOptimizer(Rule):
    """An optimizer steps a network together with the critic that judges its output.

    What it finds:
        A GAN whose generator's optimizer also holds the discriminator, or an actor's optimizer that
        also holds the critic.

    Why it matters:
        The loss of the generator is low if the discriminator errs. The optimizer therefore changes
        both: the discriminator gives way, and its own optimizer has to undo this. The gradient that
        the generator gets says little about the data.

    How it is measured:
        In one captured backward, the output of a network is detached, and the optimizer that steps
        next holds the critic behind it alone: the critic is meant to learn apart. In another
        captured backward, the critic builds on this network's output, both get a gradient, and
        another optimizer that holds both steps next. The two optimizers take turns. Of several
        critics, those count that the other optimizer trains completely.

    How to fix it:
        Give the second optimizer the parameters of its own network only.

    When it may be wrong:
        If a head is trained on detached features by one optimizer, and with all else by another.

    Source:
        Goodfellow et al. 2014, "Generative Adversarial Nets" (arXiv 1406.2661), algorithm 1: each
        network is updated by a gradient with respect to its own parameters.
    """

    code: ClassVar[str] = "GS222"
    name: ClassVar[str] = "critic-in-optimizer"
    level: ClassVar[Severity] = "error"
    needs_run: ClassVar[bool] = True

    def skip_reason(self, context: RuleContext) -> str | None:
        """Return why this rule cannot judge the recording."""
        steppers = {one.stepper for one in turns_of(context)}
        return None if len(steppers) > 1 else "fewer than two optimizers step"

    def check(self, context: RuleContext) -> Iterator[Finding]:
        """Yield a finding for every optimizer that holds a critic beside what it judges."""
        turns = list(turns_of(context))
        found = set[tuple[Stepper, Stepper]]()
        for own in turns:
            judged = own.cut - own.stepper.parameters
            for both in turns:
                pair = (own.stepper, both.stepper)
                together, critic = judged & both.trained, _whole_networks(own, both)
                if pair in found or not together or not critic:
                    continue
                if _taketurns_of(turns, *pair) and _builds_on(both.captured, critic, together):
                    found.add(pair)
                    yield self._finding(context, own, both, sorted(critic))

    def _finding(self, context: RuleContext, own: Turn, both: Turn, critic: list[str]) -> Finding:
        name = both.stepper.class_name
        return self.finding(
            context,
            message=(
                f"{name} steps {critic[0]}{_others(critic)} by the loss of what "
                f"{'it judges' if len(critic) == 1 else 'they judge'}: another optimizer trains "
                f"{'it' if len(critic) == 1 else 'them'} apart, on detached outputs"
            ),
            remedy="give this optimizer the parameters of its own network only",
            site=both.stepper.site,
            related=(context.related(own.stepper.site, "the critic's own optimizer"),),
            names=critic,
            evidence={"parameters_of_critic": len(critic)},
            count=len(critic),
            step=both.captured.step,
        )


def _others(names: list[str]) -> str:
    return f" and {counted(len(names) - 1, 'other parameter')}" if len(names) > 1 else ""


def _whole_networks(own: Turn, both: Turn) -> frozenset[str]:
    """Return what the other optimizer trains, too, of the networks that it trains completely.

    So it may hold one of two critics. A part of a network is mostly shared on purpose.
    """
    # Scripts give an optimizer one of several networks, as `model.critic` of `model`: so it is
    # judged by them.
    networks: dict[str, set[str]] = {}
    for name in own.trained:
        networks.setdefault(name.partition(".")[0], set()).add(name)
    whole = (names for names in networks.values() if names <= both.trained)
    return frozenset().union(*whole)


def _taketurns_of(turns: list[Turn], one: Stepper, other: Stepper) -> bool:
    """Return whether neither of two optimizers makes all its steps before the other's."""
    first, second = (
        # Steps count first, and within a step the order of its backwards.
        [(turn.captured.step, turn.captured.order) for turn in turns if turn.stepper == stepper]
        for stepper in (one, other)
    )
    return min(first) < max(second) and min(second) < max(first)


def _builds_on(captured: CapturedStep, critic: frozenset[str], judged: frozenset[str]) -> bool:
    """Return whether a critic's layers were computed from the output of what it judges."""
    context = RuleContext(captured.recording)
    names = {one.index: one.name for one in captured.recording.parameters}
    nodes = context.parameter_nodes
    users = {
        user.index
        for index, node in nodes.items()
        if names[index] in critic
        for user in context.consumers(node)
    }
    return any(names[index] in judged for index in context.parameters_behind(users))
