"""Known differences of how recordings were made: seed, type, torch, batch, optimizer …."""

import shlex
from collections import Counter
from collections.abc import Iterator, Sequence

from gradscope.comparison.rounding import computed_in
from gradscope.comparison.side import Side
from gradscope.frozen import dataclass
from gradscope.recording.records import Recording


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """A circumstance that is not the same in all sides."""

    what: str
    values: tuple[str, ...]
    """Value of each side; empty if missing or unknown."""


def differences_of(sides: Sequence[Side]) -> tuple[Difference, ...]:
    """Return the circumstances that differ."""
    described = [dict(_circumstances(side)) for side in sides]
    return tuple(
        Difference(what=what, values=values)
        for what in described[0]
        if len(set(values := tuple(one[what] for one in described))) > 1
    )


def _circumstances(side: Side) -> Iterator[tuple[str, str]]:
    recording = side.report.recording
    target, environment = recording.target, recording.environment
    yield "script", target.name if side.is_run else ""
    yield "arguments", _arguments(recording) if side.is_run else ""
    yield "model", target.model
    yield "seed", "" if target.seed is None else str(target.seed)
    yield "dtype", _types(recording)
    yield "mode", target.mode
    yield "batch", target.batch
    yield "loss", target.loss
    yield "optimizer", _optimizers(side)
    yield "backward passes per step", _backwards(recording)
    yield "steps before", "" if side.is_run or not side.step else str(side.step)
    yield "gradscope", recording.version
    yield "torch", environment.torch
    yield "python", environment.python
    yield "platform", environment.platform
    yield "device", environment.device
    yield "threads", str(environment.threads)


def _arguments(recording: Recording) -> str:
    """Return the arguments of a script as typed."""
    words = shlex.split(recording.command)
    name = recording.target.name
    # Options of gradscope stand before the script's name, its own arguments behind it.
    positions = [position for position, word in enumerate(words) if word == name]
    return shlex.join(words[positions[0] + 1 :]) if positions else ""


def _types(recording: Recording) -> str:
    """Return `float32`, or `float32 with bfloat16` if computations use that too."""
    own = sorted({record.shape.dtype for record in recording.parameters})
    beside = [dtype for dtype in computed_in(recording) if dtype not in own]
    if not own:
        return ""
    return " and ".join(own) + (f" with {', '.join(beside)}" if beside else "")


def _optimizers(side: Side) -> str:
    run = side.report.training_run
    if run is None:
        return side.report.target.optimizer or ""
    return ", ".join(row.title for row in run.optimizers)


def _backwards(recording: Recording) -> str:
    """Return the number of backward passes before most steps of a run; empty without a run."""
    counts = Counter(event.step for event in recording.events if event.kind == "backward")
    # The last step of an epoch may have fewer passes.
    usual = Counter(counts.values()).most_common(1)
    return str(usual[0][0]) if usual and any(s.kind == "run" for s in recording.steps) else ""
