"""GS331: target networks that never take over what the trained network has learned."""

from collections.abc import Iterator
from typing import ClassVar

from gradscope.analysis.windows import Windows
from gradscope.frozen import dataclass
from gradscope.recording.events import StillTargetEvent, only
from gradscope.recording.finding import Finding, Severity
from gradscope.recording.records import Recording
from gradscope.rules.context import RuleContext
from gradscope.rules.needs import Needs, has_step
from gradscope.rules.rule import Rule


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetNeverUpdated(Rule):
    """A target network stays as it was while the network that learns from it is trained.

    What it finds:
        `reward + gamma * target(next_state).max(1).values`, where nothing copies the trained
        network to `target` after the start, or the update is called for another network. And
        `target = network`, which is no second network.

    Why it matters:
        The network learns the values that random weights give, plus one reward. The loss falls as
        in a healthy training. A target that is the network itself moves with every step, which is
        what a target network should prevent.

    How it is measured:
        In captured steps the rule follows what linear layers compute outside of the graph: one
        number for each row, or values that are chosen by an index or a maximum. It looks at sums of
        these with data that a regression or a difference compares with a prediction. The weights
        behind such a sum are compared with their first values every ten steps and at the end. A
        weight counts if it has not changed in `steps` steps, no optimizer trains it, and a trained
        weight of its shape has changed. It is a note if a loop or a used function in the user's
        files copies states or writes to parameters: the update may come later. If other networks
        behind the same sum change, it is a warning all the same. For a target that the trained
        network itself computes, it is found if the only line that binds a name such as `target`
        binds it to the network, outside of an `if`.
        Weights in other memory than the CPU's are not compared.

    How to fix it:
        Copy the weights every few hundred steps, or move them a little after each step:
        `target.load_state_dict(network.state_dict())`, or `target_p.lerp_(p, tau)` for all pairs.

    When it may be wrong:
        If the value of a fixed network is what should be learned, one reward ahead.

    Source:
        Mnih et al., "Human-level control through deep reinforcement learning", Nature 2015: the
        target network is replaced every C updates.
    """

    code: ClassVar[str] = "GS331"
    name: ClassVar[str] = "target-never-updated"
    level: ClassVar[Severity] = "warning"
    needs_run: ClassVar[bool] = True
    needs: ClassVar[Needs] = (has_step,)

    steps: int = 30
    """Number of optimizer steps. Chosen: a shorter run may end before its first update."""

    def check(self, context: RuleContext) -> Iterator[Finding]:
        """Yield a finding for every line whose targets come from such a network."""
        for event in only(StillTargetEvent, context.shared(Windows).events):
            if event.same:
                yield self._of_same(context, event)
                continue
            context.measured(self.code, "steps", event.steps, self.steps, site=event.site)
            if event.steps < self.steps:
                continue
            name = _network(context, event.weight)
            reason = "no update has reached it" if event.may_update else "nothing updates it"
            yield self.finding(
                context,
                message=(
                    f"these targets come from {name}, which has not changed in {event.steps:,} "
                    f"steps: {reason}"
                ),
                remedy=f"copy the trained network to {name} every few hundred steps",
                site=event.site,
                severity="note" if event.may_update else self.level,
                evidence={"steps": event.steps, "limit": self.steps},
            )

    def _of_same(self, context: RuleContext, event: StillTargetEvent) -> Finding:
        return self.finding(
            context,
            message=(
                f"{event.subject} is the trained network itself, not a copy: the targets move with "
                "every step"
            ),
            remedy="make a copy: copy.deepcopy(…), and update it every few hundred steps",
            site=event.site,
            evidence={"is_same": True},
        )


def _network(context: RuleContext, weight: float | None) -> str:
    """Return the path of the network that has a weight."""
    parameters = context.recording.parameters
    # The recording may lack the network's parameters, which no optimizer holds. Captured steps list
    # those of all networks that they call.
    if weight is None or not int(weight) < len(parameters):
        still = _still_networks(context)
        return still[0] if len(still) == 1 else "the network behind them"
    name = parameters[int(weight)].name
    owner = max(
        (one.path for one in context.recording.modules if name.startswith(f"{one.path}.")),
        # The network is the outermost module with the weight, not the layer that holds it.
        key=lambda path: -path.count("."),
        default=name,
    )
    return owner or name


def _still_networks(context: RuleContext) -> list[str]:
    """Return the networks of which no weight changes between the captured steps."""
    captured = [one.recording for one in context.recording.captured_steps]
    if len(captured) < 2:
        return []
    before, after = (_norms(one) for one in (captured[0], captured[-1]))
    moved: dict[str, bool] = {}
    for name, norm in after.items():
        root = name.partition(".")[0]
        moved[root] = moved.get(root, False) or before.get(name) != norm
    return [root for root, has_moved in moved.items() if not has_moved]


def _norms(recording: Recording) -> dict[str, float | None]:
    """Return the norm of each weight, by name."""
    names = {one.index: one.name for one in recording.parameters}
    return {names[stat.parameter]: stat.weight_norm for stat in recording.parameter_stats}
