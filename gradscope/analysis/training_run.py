"""A training run step by step, and its captured steps, as reports show it besides findings."""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import field, replace
from typing import Literal, get_args

from gradscope.analysis.kept_steps import KeptSteps, Span
from gradscope.analysis.loop_windows import LoopWindow, windows
from gradscope.analysis.losses import step_losses
from gradscope.analysis.norms import total_norm
from gradscope.analysis.ranks.job import RankEnding
from gradscope.analysis.recording_index import captured_lines, users_sites
from gradscope.analysis.run_optimizers import OptimizerRow, Optimizers
from gradscope.analysis.timeline import Pattern, patterns
from gradscope.analysis.view import line_text, shown_path
from gradscope.errors import GradscopeError
from gradscope.frozen import dataclass
from gradscope.recording.events import ClipEvent, StepEvent, only
from gradscope.recording.evidence.summaries import LimitRecord, SeriesKind
from gradscope.recording.evidence.training import RunEnding, WatchCost
from gradscope.recording.finding import UNJUDGED, Verdict
from gradscope.recording.norm_table import (
    NOT_MEASURED,
    NormTable,
    are_unmeasured,
    measured_in,
    norms_of,
)
from gradscope.recording.records import CapturedStep, Recording, Site

_SHOWN = 4
"""Maximum number of steps, or of ranges of steps, that are listed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CapturedStepRow:
    """A backward in which every tensor was captured."""

    step: int
    site: Site | None
    """Line that ran it."""
    subject: str
    """Expression that backward started from; empty if unknown."""
    loss: float | None
    nodes: int
    """Number of nodes in the graph."""
    tensors: int
    """Number of tensors whose gradients were measured."""


def captured_step_rows(recording: Recording) -> tuple[CapturedStepRow, ...]:
    """Return the captured steps of a run, in order."""
    users = users_sites(recording) if recording.captured_steps else ()
    return tuple(
        CapturedStepRow(
            step=captured.step,
            site=None if site is None else users[site],
            subject=captured.recording.target.loss,
            loss=captured.recording.steps[0].loss if captured.recording.steps else None,
            nodes=len(captured.recording.nodes),
            tensors=sum(stat.gradient is not None for stat in captured.recording.tensor_stats),
        )
        for captured, site in captured_lines(recording)
    )


def captured_at(recording: Recording, step: int) -> tuple[CapturedStep, ...]:
    """Return the captured backward passes of a run's step.

    Raises:
        GradscopeError: There are none.
    """
    found = tuple(captured for captured in recording.captured_steps if captured.step == step)
    if found:
        return found
    if not any(one.kind == "run" for one in recording.steps):
        raise GradscopeError("the recording is not a training run and has no steps to choose from")
    if not recording.captured_steps:
        raise GradscopeError(
            "the run has no captured step",
            help="gradscope run captures the first steps and every 100th: see --tensor-every",
        )
    seen = steps_text(captured.step for captured in recording.captured_steps)
    # What happens after the last step has an index of its own.
    last = max((one.step for one in recording.events if one.kind == "step"), default=0)
    if step > max(one.index for one in recording.steps):
        raise GradscopeError(
            f"the run has no step {step:,}: its last step is {last:,}",
            help=f"captured in detail: {seen}",
        )
    raise GradscopeError(
        f"step {step:,} was not captured in detail; captured: {seen}",
        help=f"run it again with gradscope run --tensors-at {step}",
    )


def steps_text(steps: Iterable[int]) -> str:
    """Return `steps 0-3, 100`; of many `steps 0-3, 100, 200 and 12 more to 1,400`."""
    ranges = list(_ranges(sorted(set(steps))))
    parts = [f"{first:,}" if first == last else f"{first:,}-{last:,}" for first, last in ranges]
    is_one = len(ranges) == 1 and ranges[0][0] == ranges[0][1]
    if len(parts) > _SHOWN:
        more = len(parts) - _SHOWN + 1
        parts = [*parts[: _SHOWN - 2], f"{parts[_SHOWN - 2]} and {more} more to {parts[-1]}"]
    return f"step{'' if is_one else 's'} {', '.join(parts)}"


def _ranges(steps: list[int]) -> Iterator[tuple[int, int]]:
    """Yield the first and the last of consecutive steps."""
    first = 0
    for position, step in enumerate(steps):
        if position + 1 == len(steps) or steps[position + 1] != step + 1:
            yield steps[first], step
            first = position + 1


def verdict_on(captured: CapturedStep, verdict: Verdict) -> Verdict:
    """Return the verdict of the rules on a run, limited to one captured step.

    What they make of the captured step alone is not asked for: later steps tell whether it holds.
    Where all that they find is about other steps, this one is not called right.
    """
    findings = tuple(finding for finding in verdict.findings if finding.step == captured.step)
    if verdict.findings and not findings:
        return UNJUDGED
    return Verdict(findings=findings, ran=verdict.ran, skipped=verdict.skipped)


_INCOMPLETE = "run incomplete"


@dataclass(frozen=True, slots=True, kw_only=True)
class EndingText:
    """Text on an unusual ending."""

    title: str
    """Title such as `ended by RuntimeError`."""
    details: str
    """Message and location; may be empty."""
    is_trouble: bool
    """Whether the ending was unintended."""

    @property
    def line(self) -> str:
        """Both together."""
        return f"{self.title}: {self.details}" if self.details else self.title


def ending_text(ending: RunEnding | None, root: str, *, is_complete: bool) -> EndingText | None:
    """Return the text on how a run ended; None if it ended normally, or if unknown.

    Args:
        ending: As it was recorded.
        root: The folder to which paths are shown.
        is_complete: Whether the recording was finished.
    """
    if ending is None:
        why = "the process was killed or is still running; this is the recording so far"
        return None if is_complete else _lost(why)
    position = line_text(shown_path(ending.file, root), ending.line or 0) if ending.file else ""
    match ending.kind:
        case "raised":
            details = ": ".join(text for text in (position, ending.message) if text)
            return _ended_by(ending.exception, details)
        case "interrupted":
            return _ended_by("Ctrl-C", position)
        case "exited" if ending.code:
            return _ended_by(f"sys.exit({ending.code})", ending.message)
        case "stopped":
            return _ended_by(ending.message, "", is_trouble=False)
        case "limited":
            details = "the script continued"
            return EndingText(
                title=f"recorded up to {ending.message}", details=details, is_trouble=False
            )
        case "lost":
            return _lost(f"{ending.message}; the script continued")
    return None


def failure_text(failure: RankEnding, root: str) -> EndingText:
    """Return the text on the rank that failed first: errors of other ranks follow from it."""
    site = failure.site
    position = "" if site is None else f"{shown_path(site.file, root)}:{site.line}: "
    return EndingText(
        title=f"rank {failure.rank} failed first",
        details=f"{position}{failure.what}",
        is_trouble=True,
    )


def _ended_by(what: str, details: str, *, is_trouble: bool = True) -> EndingText:
    return EndingText(title=f"ended by {what}", details=details, is_trouble=is_trouble)


def _lost(why: str) -> EndingText:
    return EndingText(title=_INCOMPLETE, details=why, is_trouble=True)


CurveKind = Literal["loss", "raw", "norm", "update", "rate"]
"""`raw` is the norm before clips, `norm` the one that the optimizer used."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunStep:
    """A step of an optimizer."""

    step: int
    """Index among the steps of all optimizers, from 0."""
    optimizer: int
    """Index among the run's optimizers."""
    seconds: float | None
    """Seconds since the recording began."""
    loss: float | None
    grad_norm: float | None
    """Global norm over the parameters of this step, as the optimizer used their gradients."""
    norm_before_clip: float | None
    """Largest norm that a clip measured; None without a clip."""
    update_ratio: float | None
    """Norm of the update over the norm of the weights, over the parameters for which both were
    measured.
    """
    learning_rate: float | None
    count: int = 1
    """Number of steps of a long run that it stands for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingRun:
    """Description of a run, and its course."""

    optimizers: tuple[OptimizerRow, ...]
    """Optimizers, in the order of their first step."""
    steps: tuple[RunStep, ...]
    """Steps that the recording has whole."""
    patterns: tuple[Pattern, ...]
    """Sequences of events before the steps: by optimizer, the most frequent first; sequences
    without a step come last.
    """
    seconds: float
    """Seconds from the first event to the last, without the script's imports and preparations."""
    is_complete: bool
    """Whether the recording lasts to the end of the run."""
    loss_text: str = ""
    """How a step's loss is made of those of its backward passes; empty if it has a single one."""
    has_cut: bool = False
    """Whether a clip has reduced gradients."""
    ending: EndingText | None = None
    """Ending of the run; None if it ended normally, or if unknown."""
    recorded_ending: RunEnding | None = None
    cost: WatchCost | None = None
    """Cost of recording; None if unknown."""
    captured_steps: tuple[CapturedStepRow, ...] = ()
    """Backward passes in which every tensor was captured."""
    missing: int = 0
    """Number of steps of which the recording has only summaries."""
    limit: LimitRecord | None = None
    """What else the recording lacks because of its largest size; None for nothing."""
    summaries: Mapping[int, Mapping[CurveKind, Sequence[Span]]] = field(default_factory=dict)
    """By optimizer and kind of number: the summaries."""

    @property
    def step_count(self) -> int:
        """Number of steps made."""
        return len(self.steps) if not self.missing else sum(one.steps for one in self.optimizers)


def training_run(recording: Recording) -> TrainingRun | None:
    """Return the run of a recording; None if it is not of a run."""
    found = windows(recording)
    if not any(step.kind == "run" for step in recording.steps):
        return None
    optimizers = Optimizers(recording, found)
    losses = step_losses(recording)
    drawn = patterns(found, optimizers, users_sites(recording))
    ending = next(iter(recording.evidence_of(RunEnding)), None)
    times = [event.seconds for event in recording.events]
    kept = KeptSteps(recording)
    norms = norms_of(recording)
    return TrainingRun(
        optimizers=optimizers.rows,
        steps=tuple(
            run_steps(
                found,
                optimizers,
                lambda window: losses.by_step.get(window.step.index),
                lambda _: norms,
            )
        ),
        patterns=drawn,
        seconds=max(times, default=0.0) - min(times, default=0.0),
        is_complete=recording.finished,
        loss_text=losses.text,
        has_cut=any(norms.cut for pattern in drawn for _, norms in pattern.norms),
        ending=ending_text(ending, recording.target.root, is_complete=recording.finished),
        recorded_ending=ending,
        cost=next(iter(recording.evidence_of(WatchCost)), None),
        captured_steps=captured_step_rows(recording),
        missing=kept.missing,
        limit=_limit(recording.evidence_of(LimitRecord)),
        summaries={
            position: {
                kind: spans
                for kind in get_args(SeriesKind)
                if (spans := tuple(kept.spans(kind, optimizers.records_of(position))))
            }
            for position in range(len(optimizers.rows))
            if kept.summaries
        },
    )


def _limit(parts: Sequence[LimitRecord]) -> LimitRecord | None:
    """Return what the parts of a continued run lack together; None for nothing."""
    if not parts:
        return None
    return replace(
        parts[-1],
        captures=sum(one.captures for one in parts),
        events=sum(one.events for one in parts),
        gradients=sum(one.gradients for one in parts),
        norms=sum(one.norms for one in parts),
        is_full=any(one.is_full for one in parts),
    )


def run_steps(
    found: Iterable[LoopWindow],
    optimizers: Optimizers,
    loss_of: Callable[[LoopWindow], float | None],
    norms_at: Callable[[int], NormTable],
) -> Iterator[RunStep]:
    """Yield the steps of windows.

    Args:
        found: The windows, in order.
        optimizers: The optimizers of all windows.
        loss_of: Returns the loss of a step; None if the recorded is it.
        norms_at: Returns a table with the norms of a step.
    """
    for window in found:
        position = optimizers.position(window)
        if position is None or window.is_skipped:
            continue
        step = window.step.index
        event = next(only(StepEvent, window.events), None)
        norm, loss = None if event is None else event.norm, loss_of(window)
        measured = norms_at(step)
        yield RunStep(
            step=step,
            optimizer=position,
            seconds=_seconds(window, event),
            loss=window.step.loss if loss is None else loss,
            grad_norm=_grad_norm(measured, step) if norm is None else norm,
            norm_before_clip=_norm_before_clip(window),
            update_ratio=_update_ratio(measured, step),
            learning_rate=None if event is None else event.lr,
            count=window.count,
        )


def _norm_before_clip(window: LoopWindow) -> float | None:
    """Return the largest norm that a clip measured on unscaled gradients."""
    clips = only(ClipEvent, window.events)
    norms = [clip.norm for clip in clips if clip.norm is not None and not clip.scaled]
    # NaN is larger than every number here.
    return max(norms, key=lambda norm: (math.isnan(norm), norm), default=None)


def _seconds(window: LoopWindow, event: StepEvent | None) -> float | None:
    if event is not None:
        return event.seconds
    return window.last.seconds if window.last else None


def _grad_norm(norms: NormTable, step: int) -> float | None:
    """Return the norm of all gradients in a step."""
    rows = norms.rows_of(step)
    return total_norm(measured_in(norms.gradients[rows.start : rows.stop]))


def _update_ratio(norms: NormTable, step: int) -> float | None:
    """Return the norm of all updates over that of these parameters; None if not measured."""
    rows = norms.rows_of(step)
    measured = norms.updates[rows.start : rows.stop]
    if are_unmeasured(measured):
        return None  # as in nine steps of ten
    known, of_known = measured_in(measured), norms.weights[rows.start : rows.stop]
    if len(known) < len(measured):
        pairs = zip(measured, of_known, strict=True)
        of_known = [weight for update, weight in pairs if update != NOT_MEASURED]
    updates, weights = total_norm(known), total_norm(of_known)
    return updates / weights if updates is not None and weights else None
