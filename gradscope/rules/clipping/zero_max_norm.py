"""GS410: clips that leave nothing."""

from collections.abc import Iterator, Sequence
from math import isnan
from typing import ClassVar

from gradscope.analysis.clipping.clips import Clip, Clips
from gradscope.frozen import dataclass
from gradscope.recording.events import ClipValueEvent
from gradscope.recording.finding import Finding, Severity
from gradscope.rules.context import RuleContext
from gradscope.rules.rule import Rule


@dataclass(frozen=True, slots=True, kw_only=True)
class ZeroMaxNorm(Rule):
    """A limit of 0 makes every gradient zero, and a negative one flips its sign.

    What it finds:
        Calls of a clip function with a limit that is zero, negative or NaN.

    Why it matters:
        0 often means "off" in training programs. torch's functions use it as the largest allowed
        norm: no weight learns. With a negative limit, steps increase the loss.

    How it is measured:
        The limit of each call that finds gradients. If other calls on the same line have a limit
        above zero, the finding is a warning.

    How to fix it:
        Call it only `if max_norm > 0`, or give `float("inf")` for no limit.

    When it may be wrong:
        If some parameters should get no gradient for a while. `requires_grad_(False)` says so.

    Source:
        torch source, `torch/nn/utils/clip_grad.py`: every gradient is multiplied by
        `max_norm / (norm + 1e-6)`, at most 1.
    """

    code: ClassVar[str] = "GS410"
    name: ClassVar[str] = "zero-max-norm"
    level: ClassVar[Severity] = "error"
    needs_run: ClassVar[bool] = True
    explains: ClassVar[tuple[str, ...]] = ("GS109",)

    def check(self, context: RuleContext) -> Iterator[Finding]:
        """Yield a finding for every line that clips to nothing."""
        for calls in context.shared(Clips).by_line:
            wrong = [clip for clip in calls if _is_wrong(clip)]
            if wrong:
                yield self._finding(context, wrong, len(calls))

    def _finding(self, context: RuleContext, wrong: Sequence[Clip], calls: int) -> Finding:
        first = wrong[0]
        return self.finding(
            context,
            message=f"{first.text} {_harm(first)}",
            remedy='clip only if the limit is above 0, or pass float("inf") for no limit',
            site=first.event.site,
            severity="error" if len(wrong) == calls else "warning",
            evidence={
                "limit": first.limit,
                "norm": first.norm,
                "calls_without_limit": len(wrong),
                "calls": calls,
            },
            count=len(wrong),
            step=first.event.step,
        )


def _is_wrong(clip: Clip) -> bool:
    limit = clip.limit
    # `not limit > 0` holds for NaN, too. Without a fresh gradient the call changes nothing that a
    # step uses.
    return limit is not None and not limit > 0 and clip.event.fresh > 0


def _harm(clip: Clip) -> str:
    limit = clip.limit or 0.0
    if isnan(limit):
        return "makes every gradient NaN"
    if not limit:
        return "makes every gradient zero: the step has no effect"
    if isinstance(clip.event, ClipValueEvent):
        return f"makes every element of the gradients {limit:g}"
    return "flips the sign of every gradient: the step increases the loss"
