"""GS306: optimizer steps that have no gradient to go by."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import takewhile
from typing import ClassVar

from gradscope.analysis.kept_steps import steps_of
from gradscope.analysis.windows import Series, Window, Windows
from gradscope.frozen import dataclass
from gradscope.recording.events import BackwardEvent, only
from gradscope.recording.evidence.ranks import RankEvent
from gradscope.recording.finding import Finding, RelatedLocation, Severity
from gradscope.recording.norm_table import REACHES, norms_of
from gradscope.recording.records import Site
from gradscope.rules.context import RuleContext
from gradscope.rules.helpers.affected_windows import AffectedWindows, Group, by_line
from gradscope.rules.helpers.optimizers import line_of_newer_model
from gradscope.rules.rule import Rule

_STEP_LAST = "the order is zero_grad(), backward(), step()"
_FROZEN = REACHES.index("frozen")
_LOOKED_AT = 64
"""Number of last steps that show whether their parameters are frozen."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StepWithoutGradient(Rule):
    """The optimizer steps without a gradient.

    What it finds:
        Optimizer steps whose gradients are all None or zero, be it from the start or from some step
        on to the end, steps that reuse the gradients of the previous step, and loops that step
        before their first backward.

    Why it matters:
        A step without gradients moves nothing, or only by momentum and weight decay: the model does
        not train. A step with used gradients applies them twice. A loop that steps first always
        follows the gradients of the previous batch.

    How it is measured:
        For each line of a step: if at least `share` of its steps have no gradient, at least two of
        them and the last one included, the finding is an error. The same holds if training goes
        wrong midway: the last `tail_share` of its steps, `tail_steps` at least, have none although
        a backward precedes each of them; it is a warning while other optimizers still get
        gradients. If at least
        `share` of its steps have only used gradients to which nothing was added, it is a warning,
        as is a line whose first step comes before any backward. Optimizers of frozen parameters are
        skipped.

    How to fix it:
        Check that the optimizer holds the parameters of the model that is trained, and that every
        step has a backward before it.

    When it may be wrong:
        If a part of the model is trained after the recording ends, but its optimizer steps from the
        start. A single step without gradients before training, as used to silence a scheduler
        warning, is not reported.

    Source:
        torch source, `torch.optim`: parameters without a gradient are skipped silently. fastai
        forum and pytorch forum threads in which a model was replaced by a copy of its best state.
        Measured: none of 99 healthy scripts is found (28 public cases, 30 of tests/programs, 41 by
        another author); the sick ones of tests/programs end with 30 and 35 such steps of 60.
    """

    code: ClassVar[str] = "GS306"
    name: ClassVar[str] = "step-without-gradient"
    level: ClassVar[Severity] = "error"
    needs_run: ClassVar[bool] = True
    explains: ClassVar[tuple[str, ...]] = ("GS203",)

    share: float = 0.9
    """Share of the steps at a line, 0 to 1. Chosen: nearly all, since temporarily frozen parts also
    have steps without gradients."""
    tail_steps: int = 8
    """Number of last steps without gradients. Chosen: more than a phase of a GAN or a warm-up."""
    tail_share: float = 0.2
    """Share of the steps at a line, 0 to 1, that these last steps are. Chosen: a smaller share is a
    harmless end of a run.
    """

    def check(self, context: RuleContext) -> Iterator[Finding]:
        """Yield a finding for every line whose steps lack a gradient of their own."""
        windows = context.shared(Windows)
        # With uneven data, the rank that has run out steps on without gradients to match the
        # collectives of the others.
        shadows = {one.site for one in context.recording.evidence_of(RankEvent) if _is_shadow(one)}
        found = (line for one in windows.series for line in _by_step_line(windows, one))
        lines = [line for line in found if line.windows[0].step.site not in shadows]
        for group in self._groups(context, lines, lambda window: window.is_empty):
            leaf = _leaf_backward(group)
            yield self._found(
                context,
                group,
                message=f"{group.text} have no gradient to use: nothing is trained"
                + ("" if leaf is None else ", as backward() starts at a tensor without a graph"),
                made=leaf,
                severity="error",
                remedy=(
                    "check that the optimizer holds the parameters of the trained model, and that "
                    f"they have gradients before the step: {_STEP_LAST}"
                    if leaf is None
                    else "call backward() on the loss itself: torch.tensor(loss), Variable(loss) "
                    "and detach() make a new tensor that does not know the model"
                ),
            )
        for group in self._tails(context, lines):
            yield self._ceased(context, windows, group)
        for group in self._groups(context, lines, _repeats):
            yield self._found(
                context,
                group,
                message=f"{group.text} reuse the gradients of the previous step",
                severity="warning",
                remedy="call step() once per backward()",
            )
        yield from self._ahead(context, windows, lines)

    def _groups(
        self, context: RuleContext, lines: list[Series], is_sick: Callable[[Window], bool]
    ) -> tuple[Group, ...]:
        affected = []
        for line in lines:
            sick = tuple(window for window in line.windows if is_sick(window))
            context.measured_share(
                self.code,
                "share_of_steps",
                steps_of(sick),
                line.step_count,
                self.share,
                subject=line.name,
                site=line.windows[-1].step.site,
            )
            is_lasting = line.windows[-1] in sick[-1:]  # a part may be frozen at first
            if steps_of(sick) > 1 and is_lasting and steps_of(sick) >= self.share * line.step_count:
                affected.append(AffectedWindows(series=line, windows=sick, judged=line.step_count))
        return by_line(affected, lambda window: window.step.site)

    def _tails(self, context: RuleContext, lines: list[Series]) -> tuple[Group, ...]:
        """Return the last steps at each line, where training went wrong midway."""
        affected = []
        for line in lines:
            last = _tail(context, line)
            context.measured(
                self.code,
                "last_steps",
                steps_of(last),
                max(self.tail_steps, self.tail_share * line.step_count),
                subject=line.name,
            )
            # Steps that lack gradients from the start on are reported above, as a whole.
            is_whole = steps_of(last) >= self.share * line.step_count
            if steps_of(last) < max(self.tail_steps, self.tail_share * line.step_count) or is_whole:
                continue
            # Steps without any backward before them, as in a loop that only advances a schedule
            # after training, do not claim to train.
            is_trained = all(any(e.kind == "backward" for e in w.events) for w in last)
            if is_trained:
                affected.append(AffectedWindows(series=line, windows=last, judged=line.step_count))
        return by_line(affected, lambda window: window.step.site)

    def _ceased(self, context: RuleContext, windows: Windows, group: Group) -> Finding:
        start = group.first.step.position
        optimizers = {
            one for one_affected in group.affected for one in one_affected.series.optimizers
        }
        others = any(
            window.step.position > start and not window.is_empty
            for series in windows.series
            if optimizers.isdisjoint(series.optimizers)
            for window in series.windows
        )
        made = line_of_newer_model(context, group.first.step.step)
        return self._found(
            context,
            group,
            message=(
                f"the last {group.step_count:,} steps have no new gradient to use: from step "
                f"{group.first.step.step:,} on, "
                + ("this optimizer trains nothing" if others else "nothing is trained")
                + ("" if made is None else ", as a newer model took the place of the one it holds")
            ),
            made=made,
            severity="warning" if others else "error",
            remedy=(
                "check whether the model was replaced, copied or cut off before that step: the "
                "optimizer must hold the parameters of the model that the loss uses"
            ),
        )

    def _ahead(
        self, context: RuleContext, windows: Windows, lines: list[Series]
    ) -> Iterator[Finding]:
        """Yield a finding for every loop that steps before its first backward."""
        for line in lines:
            first, *others = line.windows
            comes_first = windows.first_pass is None or first.step.position < windows.first_pass
            is_lost = comes_first and first.is_empty
            # With one later step, the first may be a step before training that silences the warning
            # of schedulers that step first.
            if not is_lost or len(others) < 2 or any(window.is_empty for window in others):
                continue
            one_affected = AffectedWindows(series=line, windows=(first,), judged=line.step_count)
            yield self._found(
                context,
                Group(site=first.step.site, affected=(one_affected,)),
                message=(
                    "step() comes before the first backward(): the first step does nothing, and "
                    f"the other {steps_of(others):,} use the gradients of the previous batch"
                ),
                severity="warning",
                remedy=_STEP_LAST,
                related=context.related(
                    _pass_of(others[0]), "the backward whose step comes too late"
                ),
            )

    def _found(
        self,
        context: RuleContext,
        group: Group,
        *,
        message: str,
        severity: Severity,
        remedy: str,
        related: RelatedLocation | None = None,
        made: Site | int | None = None,
    ) -> Finding:
        step = group.first.step
        record = group.affected[0].series.record
        return self.finding(
            context,
            message=message,
            remedy=remedy,
            site=group.site if made is None else made,
            related=(
                related,
                None if made is None else context.related(group.site, "the step"),
                context.related(None if record is None else record.site, "the optimizer"),
            ),
            severity=severity,
            parameters=group.parameters,
            evidence={
                "steps_concerned": group.step_count,
                "steps": group.judged,
                "share_limit": self.share,
                "parameters": step.parameters,
                "parameters_without_gradient": step.none,
            },
            count=group.step_count,
            step=step.step,
            caused_by=("GS205", "GS206"),
        )


def _leaf_backward(group: Group) -> int | None:
    """Return the line whose backward starts at a leaf before all of these steps, else None."""
    passes = [tuple(only(BackwardEvent, window.events)) for window in group.windows]
    if not all(passes) or not all(_starts_at_leaf(one) for ones in passes for one in ones):
        return None
    return passes[0][0].site


def _starts_at_leaf(event: BackwardEvent) -> bool:
    """Return whether a backward starts at a tensor that no operation made, and reaches nothing."""
    numbers = event.numbers
    # A backward with a graph has a root. A missing root alone may also be an event whose numbers
    # were not recorded.
    return "loss" in numbers and "root" not in numbers and numbers.get("reached") == 0


def _is_shadow(event: RankEvent) -> bool:
    """Return whether a rank without a batch stepped only to match the other ranks."""
    return event.kind == "shadow-step"


def _by_step_line(windows: Windows, series: Series) -> Iterator[Series]:
    """Yield the steps of an optimizer by the line that makes them."""
    # An optimizer of frozen parameters steps without gradients by design, until they are unfrozen.
    if not windows.requires_grad(series):
        return
    # A script may step one optimizer at a line of the warm-up and at that of the loop. Shares are
    # taken of each line.
    for site in dict.fromkeys(window.step.site for window in series.windows):
        here = tuple(window for window in series.windows if window.step.site == site)
        yield replace(series, windows=here)


def _tail(context: RuleContext, line: Series) -> tuple[Window, ...]:
    """Return the last steps without a new gradient, none where they are of frozen parameters."""
    found = list(takewhile(_is_unfed, reversed(line.windows)))
    found.reverse()
    norms = norms_of(context.recording)
    held = set(line.parameters)
    # A part frozen midway is healthy. The freeze shows in each step, so that a long tail need not
    # be read whole.
    for window in found[:_LOOKED_AT]:
        rows = norms.rows_of(window.step.step)
        reaches = {norms.reaches[row] for row in rows if norms.parameters[row] in held}
        if _FROZEN in reaches:
            return ()
    return tuple(found)


def _is_unfed(window: Window) -> bool:
    """Return whether a step has no gradient, or only some that nothing has cleared since."""
    step = window.step
    is_used = step.stale > 0 and step.stale == step.with_gradient
    return window.is_empty or is_used


def _repeats(window: Window) -> bool:
    """Return whether a step has nothing but what an earlier one has used."""
    step = window.step
    is_used = step.stale and step.stale == step.with_gradient
    # A backward before the step that adds nothing would be another cause, such as a graph that does
    # not reach the parameters.
    return bool(is_used) and not any(isinstance(event, BackwardEvent) for event in window.events)


def _pass_of(window: Window) -> int | None:
    return window.passes[-1].site if window.passes else None
