"""GS409: clips between the micro-batches of one step."""

from collections.abc import Iterator, Sequence
from typing import ClassVar

from gradscope.analysis.clipping.clips import Clip, Clips
from gradscope.frozen import dataclass
from gradscope.recording.events import BackwardEvent, ZeroEvent
from gradscope.recording.finding import Finding, Severity
from gradscope.rules.context import RuleContext
from gradscope.rules.fix import FixRule
from gradscope.rules.rule import Rule


@dataclass(frozen=True, slots=True, kw_only=True)
class ClipInsideAccumulation(Rule):
    """Gradients are clipped after every micro-batch instead of once before the step.

    What it finds:
        A clip to whose gradients a later backward adds before the step, and that is called again
        on the sum.

    Why it matters:
        The first micro-batches are clipped repeatedly, and the last one counts fully. The step
        differs from that of the whole batch, and depends on the order of the micro-batches.

    How it is measured:
        Calls on one line between two steps, with a backward between them that adds to gradients
        that are there. The finding is a note where none of the calls had anything to cut.

    How to fix it:
        Clip where the step is: `if (i + 1) % k == 0: clip_grad_norm_(…); optimizer.step()`.

    Fix safety:
        Safe. The clip moves before the step, with the limit it has. Under
        `accelerator.accumulate(…)`, it comes under `if accelerator.sync_gradients`. No edit if it
        uses names of the inner loop, or if a scaler makes the step.

    When it may be wrong:
        If each part is bounded on purpose, as for differential privacy. There, gradients are kept
        elsewhere and zeroed in between, which is not reported.

    Source:
        Pascanu, Mikolov and Bengio 2013 (arXiv 1211.5063), section 3.2: the gradient of the step is
        clipped; Abadi et al. 2016 (arXiv 1607.00133), algorithm 1, clips those of examples.
    """

    code: ClassVar[str] = "GS409"
    name: ClassVar[str] = "clip-inside-accumulation"
    level: ClassVar[Severity] = "warning"
    needs_run: ClassVar[bool] = True
    fix: ClassVar[FixRule | None] = FixRule(safety="safe", reveals=("GS405",))

    share: float = 0.5
    """Share of the steps with a call on the line that must show the problem, 0 to 1. Chosen."""

    def check(self, context: RuleContext) -> Iterator[Finding]:
        """Yield a finding for every line that clips micro-batches."""
        for calls in context.shared(Clips).by_line:
            by_step: dict[int, list[Clip]] = {}
            for clip in calls:
                if clip.step is not None:
                    by_step.setdefault(clip.step.position, []).append(clip)
            inside = [ones for ones in by_step.values() if _adds_between(ones)]
            context.measured_share(
                self.code,
                "share_of_steps",
                len(inside),
                len(by_step),
                self.share,
                subject=calls[0].text,
                site=calls[0].event.site,
            )
            if inside and len(inside) >= self.share * len(by_step):
                yield self._finding(context, inside, len(by_step))

    def _finding(
        self, context: RuleContext, inside: Sequence[Sequence[Clip]], steps: int
    ) -> Finding:
        first = inside[0][0]
        cut = [clip for ones in inside for clip in ones if clip.cuts is not False]
        times = max(len(ones) for ones in inside)
        backward = next(event for event in first.later if isinstance(event, BackwardEvent))
        return self.finding(
            context,
            message=(
                f"{first.text} is called {times} times before each step, between the backward "
                "passes that accumulate its gradient"
            ),
            remedy="clip once, after the last backward before the step",
            site=first.event.site,
            related=(
                context.related(backward.site, "the next backward adds to the clipped gradients"),
            ),
            severity=None if cut else "note",
            evidence={
                "calls_before_a_step": times,
                "calls_that_cut": len(cut),
                "limit": first.limit,
                "steps": steps,
            },
            count=len(inside),
            step=first.event.step,
        )


def _adds_between(calls: Sequence[Clip]) -> bool:
    """Return whether a backward adds to gradients that a call other than the last clipped."""
    # The last call stands behind the last backward and is right; clips of several parts behind one
    # backward are, too.
    return any(clip.event.fresh and _is_added_to(clip, until=calls[-1]) for clip in calls[:-1])


def _is_added_to(clip: Clip, *, until: Clip) -> bool:
    for event in clip.later:
        # Per-example clipping zeroes after each clip and sums the gradients elsewhere, as for
        # differential privacy. A closure also zeroes first.
        if event.position >= until.event.position or isinstance(event, ZeroEvent):
            return False
        if isinstance(event, BackwardEvent) and event.added:
            return True
    return False
