"""Captured backward passes of a run, as a report lists them."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from gradscope.errors import GradscopeError
from gradscope.recording.finding import UNJUDGED, Verdict
from gradscope.recording.records import CapturedStep, Recording, Site

_SHOWN = 4
"""Steps, or steps on end, that are listed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CapturedStepRow:
    """A backward of which every tensor was captured."""

    step: int
    site: Site | None
    """The line that ran it."""
    subject: str
    """What it started from, as it is written there; empty where that cannot be told."""
    loss: float | None
    nodes: int
    """Number of nodes in the graph."""
    tensors: int
    """Number of tensors whose gradients were measured."""


def captured_step_rows(recording: Recording) -> tuple[CapturedStepRow, ...]:
    """Return the captured steps of a run, in order."""
    if not recording.captured_steps:
        return ()
    sites = {(event.step, event.order): event.site for event in recording.events}
    return tuple(
        CapturedStepRow(
            step=captured.step,
            site=None
            if (site := sites.get((captured.step, captured.order))) is None
            else recording.sites[site],
            subject=captured.recording.target.loss,
            loss=captured.recording.steps[0].loss if captured.recording.steps else None,
            nodes=len(captured.recording.nodes),
            tensors=sum(stat.gradient is not None for stat in captured.recording.tensor_stats),
        )
        for captured in recording.captured_steps
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
    raise GradscopeError(
        f"step {step:,} was not captured in detail; captured: {seen}",
        help=f"run it again with gradscope run --tensors-at {step}",
    )


def steps_text(steps: Iterable[int]) -> str:
    """Return `steps 0-3, 100`; of many `steps 0-3, 100, 200 and 12 more to 1,400`."""
    ranges = list(_ranges(sorted(set(steps))))
    words = [f"{first:,}" if first == last else f"{first:,}-{last:,}" for first, last in ranges]
    is_one = len(ranges) == 1 and ranges[0][0] == ranges[0][1]
    if len(words) > _SHOWN:
        more = len(words) - _SHOWN + 1
        words = [*words[: _SHOWN - 2], f"{words[_SHOWN - 2]} and {more} more to {words[-1]}"]
    return f"step{'' if is_one else 's'} {', '.join(words)}"


def _ranges(steps: list[int]) -> Iterator[tuple[int, int]]:
    """Yield the first and last of steps that follow each other."""
    first = 0
    for position, step in enumerate(steps):
        if position + 1 == len(steps) or steps[position + 1] != step + 1:
            yield steps[first], step
            first = position + 1


def verdict_on(captured: CapturedStep, verdict: Verdict) -> Verdict:
    """Return what the rules make of a run, as far as it is about one look.

    What they make of the look alone is not asked for: later steps tell whether it holds. Where all
    that they find is about other steps, this one is not called right.
    """
    findings = tuple(finding for finding in verdict.findings if finding.step == captured.step)
    if verdict.findings and not findings:
        return UNJUDGED
    return Verdict(findings=findings, ran=verdict.ran, skipped=verdict.skipped)
