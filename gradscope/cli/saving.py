"""Where the recordings of a check's runs are kept."""

import re
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

from gradscope.check.options import PlannedTarget
from gradscope.check.results import CheckResult
from gradscope.cli.errors import show_note
from gradscope.cli.output import check_destinations
from gradscope.errors import GradscopeError

Positions = Mapping[tuple[str, int | None], Path]
"""By target's name and seed."""


def recording_locations(
    save: Path, planned: Sequence[PlannedTarget], inputs: Collection[Path], *, force: bool
) -> Positions:
    """Return the file of each run: the one that is named, or files of their own in that folder.

    Args:
        save: What is named.
        planned: The targets that will run.
        inputs: What the check reads, which is never overwritten.
        force: Whether other files may be.

    Raises:
        GradscopeError: They cannot be written, or something is there and `force` is not set.
    """
    runs = [(target.name, seed) for target in planned for seed in target.every_seed]
    if not runs:
        raise GradscopeError("nothing to --save: the recordings are already saved")
    if len(runs) == 1 and not save.is_dir():
        found = check_destinations("-", save, force=force, inputs=inputs).recording
        assert found is not None
        return {runs[0]: found.path}
    if save.exists() and not save.is_dir():
        raise GradscopeError(
            f"`{save}` can hold one recording, but there are {len(runs)} runs",
            help="name a folder; it is created if needed",
        )
    folder = save.resolve()
    positions: dict[tuple[str, int | None], Path] = {}
    for name, seed in runs:
        positions[name, seed] = _free(folder, name, seed, {*positions.values()})
    _make(folder)
    for position in positions.values():
        check_destinations("-", position, force=True, inputs=inputs)
    taken = next((position for position in positions.values() if position.exists()), None)
    if taken is not None and not force:
        raise GradscopeError(
            f"'{save / taken.name}' already exists", help="add --force to overwrite it"
        )
    return positions


def _make(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise GradscopeError(
            f"cannot create the folder '{folder}' for --save", cause=error.strerror
        ) from None


def _free(folder: Path, name: str, seed: int, taken: set[Path]) -> Path:
    """Return a file for a run that no other run has."""
    stem = re.sub(r"[^\w.-]+", "-", name).strip("-.") or "target"
    position, number = folder / f"{stem}-seed-{seed}.gradscope", 1
    while position in taken:
        number += 1
        position = folder / f"{stem}-{number}-seed-{seed}.gradscope"
    return position


def save_runs(result: CheckResult, positions: Positions, *, force: bool) -> None:
    """Save the recordings of those runs of a check that got so far."""
    from gradscope.recording.store import save_recording

    saved = []
    for target in result.targets:
        for run in target.runs:
            position = positions.get((target.name, run.recording.target.seed))
            if position is not None:
                save_recording(run.recording, position, force=force)
                saved.append(position)
    if len(saved) == 1:
        show_note(f"wrote {saved[0]}")
    elif saved:
        show_note(f"wrote {len(saved)} recordings into {saved[0].parent}")
