"""GS328: averages of the weights that run away, are almost copies, or are not stored."""

from collections.abc import Iterator
from typing import ClassVar, NamedTuple

from gradscope.analysis.windows import Windows
from gradscope.frozen import dataclass
from gradscope.phrasing import counted, short
from gradscope.recording.events import AverageEvent, only
from gradscope.recording.evidence.parameters import UncalledUpdateRecord
from gradscope.recording.finding import Finding, Severity
from gradscope.recording.records import Recording, Site
from gradscope.rules.context import RuleContext
from gradscope.rules.needs import Needs, has_step
from gradscope.rules.rule import Rule

_HALF = 0.5
"""Share that an average keeps of itself at most where a falling share is reported."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WrongWeightAverage(Rule):
    """A moving average of the weights runs away, is almost a copy, or is never updated.

    What it finds:
        `average.add_((average - weight) * (1 - decay))`, which adds the gap where it should take it
        away. And `target = (1 - tau) * weight + tau * target` with a small `tau`: its factors are
        swapped. Also if `tau` grows as for a warm-up, and the target keeps less and less of itself.
        And `average = average * decay + weight * (1 - decay)` in a loop over both, which
        gives a new value to the loop's variable and leaves the average as it was. And a function
        that would update a copy of a network, and that nothing calls, or its decay, which nothing
        reads.

    Why it matters:
        An average that moves away multiplies its distance from the weights in every step and grows
        without bound. The training looks normal, and the saved average is useless. A target with
        swapped factors takes over each step of the network, and holds nothing still. An average
        that is not stored remains the random network of the start.

    How it is measured:
        In captured steps the rule follows sums of multiples of tensors that are computed outside of
        the graph. It looks at lines that write `a` times its own content and `1 - a` times a
        parameter of the optimizer to a tensor that is no such parameter. `a` is above 1, which is
        an error, or above 0 and at most `least_kept`. It has to be the same for all tensors, and in
        two captured steps, as the factor of an average that warms up grows. A factor that falls
        over three captured steps to less than a half is reported, too. An average that is
        computed and not written is lost if its statement assigns to a variable of the loop, or
        drops the result, and the loop neither stores anything nor reads the variable later.
        A function is never called if it loops over the parameters of two networks, writes to those
        of one, and no file of the user's names it. A decay, momentum, rate or interval of such
        updates is unused if no file reads it. Then a frozen copy of a network has to be used
        by the forward, to equal the network in the first captured step, and to be unchanged in the
        last one, while the network is not.

    How to fix it:
        `average.mul_(decay).add_(weight, alpha=1 - decay)`, or
        `target.lerp_(weight, tau)`, with a decay near 1 and a small tau.

    When it may be wrong:
        If a tensor is meant to extrapolate the weights, or to follow them within a step or two.

    Source:
        ostris/ai-toolkit issue 1034. Lillicrap et al., "Continuous control with deep reinforcement
        learning", ICLR 2016, section 3: targets are constrained to change slowly.
    """

    code: ClassVar[str] = "GS328"
    name: ClassVar[str] = "wrong-weight-average"
    level: ClassVar[Severity] = "warning"
    needs_run: ClassVar[bool] = True
    needs: ClassVar[Needs] = (has_step,)

    least_kept: float = 0.05
    """Largest factor `a`, 0 to 0.1. Chosen: a decay of 0.9 and a tau of 0.5 are in use."""

    def check(self, context: RuleContext) -> Iterator[Finding]:
        """Yield a finding for every line with such an average."""
        yield from self._of_uncalled(context)
        for event in only(AverageEvent, context.shared(Windows).events):
            own = event.own
            if own is None:
                continue
            tensors = counted(event.tensors or 0, "tensor")
            if event.lost:
                yield self._of_lost(context, event, tensors)
                continue
            # A factor that falls tells by its course that it is swapped, so it need not be small
            # yet.
            limit = _HALF if event.falls else self.least_kept
            context.measured(self.code, "factor", own, limit, site=event.site)
            told = _told(event, tensors, self.least_kept)
            if told is None:
                continue
            message, remedy = told
            yield self.finding(
                context,
                severity="error" if own > 1 else self.level,
                message=message,
                remedy=remedy,
                site=event.site,
                evidence={"factor": own, "limit": 1.0 if own > 1 else limit},
                count=event.tensors or 0,
                step=event.step,
            )

    def _of_uncalled(self, context: RuleContext) -> Iterator[Finding]:
        found = {
            captured.recording.sites[one.site]: one
            for captured in context.recording.captured_steps
            for one in captured.recording.evidence_of(UncalledUpdateRecord)
        }
        functions = {site: one for site, one in found.items() if not one.is_rate}
        # A rate that nothing reads follows from an update that nothing calls. Only the cause is
        # reported.
        sites = functions or found
        # With several candidates it is unknown which one should update the copy.
        still = next(_still_copies(context), None) if len(sites) == 1 else None
        if still is None:
            return
        for site, one in sites.items():
            reason = (
                f"nothing reads {one.name}, which should say how it is updated"
                if one.is_rate
                else f"nothing calls {one.name}(), which would update it"
            )
            yield self.finding(
                context,
                message=f"{still.copy} stays what {still.network} was at first: {reason}",
                remedy=(
                    f"update {still.copy} after each step of the optimizer"
                    if one.is_rate
                    else f"call {one.name}() after each step of the optimizer"
                ),
                site=site,
                related=(context.related(still.site, "the copy"),),
                evidence={"tensors": still.tensors},
                count=still.tensors,
            )

    def _of_lost(self, context: RuleContext, event: AverageEvent, tensors: str) -> Finding:
        return self.finding(
            context,
            severity="error",
            message=f"the average of {tensors} is computed and not stored: they stay as they were",
            remedy="write in place: average.lerp_(weight, 1 - decay)",
            site=event.site,
            evidence={"tensors": event.tensors},
            count=event.tensors or 0,
            step=event.step,
        )


def _told(event: AverageEvent, tensors: str, least_kept: float) -> tuple[str, str] | None:
    """Return what is wrong with an average and how to put it right, None if nothing is."""
    own = event.own or 0.0
    if own > 1:
        return (
            f"the average of {tensors} runs away from the weights: each update multiplies its "
            f"distance from them by {short(own, 5)}",
            "take the gap away: average.lerp_(weight, 1 - decay)",
        )
    if event.falls:
        return (
            f"the average of {tensors} keeps less of itself in each update, now {short(own, 3)}: "
            "the factors of its warm-up are swapped",
            "swap the two factors: average.lerp_(weight, 1 - decay)",
        )
    # A factor of exactly 0 is a plain copy, as a hard update of a target network is. Factors are
    # measured in float32, so the limit needs room for rounding.
    if 0 < own <= least_kept * (1 + 1e-6):
        return (
            f"the average of {tensors} keeps {short(own, 3)} of itself and takes "
            f"{short(1 - own, 3)} of the weights in each update: almost a copy of them",
            "swap the two factors: target.lerp_(weight, tau)",
        )
    return None


class _StillCopy(NamedTuple):
    """A network, and a frozen copy of it that the forward uses."""

    copy: str
    """Path of the copy."""
    network: str
    tensors: int
    site: Site | None
    """Line that made the copy, if it is known."""


def _still_copies(context: RuleContext) -> Iterator[_StillCopy]:
    """Yield the copies that are equal to a network in the first captured step, and never change.

    The network has changed by the last captured step.
    """
    captured = [one.recording for one in context.recording.captured_steps]
    if len(captured) < 2:
        return
    first, last = captured[0], captured[-1]
    before, after = _modules(first), _modules(last)
    called = {last.modules[call.module].path for call in last.calls}
    fixed = {path for path in before if _is_fixed(first, path) and path in called}
    for copy in sorted(fixed):
        weights = before[copy]
        # A part of a fixed network is told with the whole.
        if copy.rpartition(".")[0] in fixed or not weights or after.get(copy) != weights:
            continue
        for network, others in before.items():
            # Norms that were not measured are equal without meaning anything.
            is_same = network != copy and others == weights and None not in weights.values()
            if is_same and not _is_fixed(first, network) and after.get(network) != others:
                yield _StillCopy(copy, network, len(weights), _site(last, copy))
                break


def _modules(recording: Recording) -> dict[str, dict[str, float | None]]:
    """Return the norms of every module's parameters, by each of its paths."""
    found: dict[str, dict[str, float | None]] = {}
    norms = {stat.parameter: stat.weight_norm for stat in recording.parameter_stats}
    for one in recording.parameters:
        for name in (one.name, *one.aliases):
            parts = name.split(".")
            for depth in range(1, len(parts)):
                inner = found.setdefault(".".join(parts[:depth]), {})
                inner[".".join(parts[depth:])] = norms.get(one.index)
    return found


def _is_fixed(recording: Recording, path: str) -> bool:
    own = [one for one in recording.parameters if one.name.startswith(f"{path}.")]
    return not any(one.requires_grad for one in own)


def _site(recording: Recording, path: str) -> Site | None:
    module = next(one for one in recording.modules if one.path == path)
    return None if module.site is None else recording.sites[module.site]
