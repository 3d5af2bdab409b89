"""Finds the recordings that a command is given, and which of them are ranks of one job."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

from gradscope.errors import GradscopeError

if TYPE_CHECKING:
    from gradscope.recording.records import Recording

_SUFFIX = ".gradscope"
_SECONDS = 300
"""Seconds between the starts of two ranks: the rendezvous lets all of them go together, but the
clocks of hosts differ."""


@dataclass(frozen=True)
class Loaded:
    """A recording, or those of the ranks of one job."""

    paths: tuple[Path, ...]
    recordings: "tuple[Recording, ...]"

    @property
    def name(self) -> str:
        """Its path; of several ranks the name that they share."""
        if len(self.paths) == 1:
            return str(self.paths[0])
        stem = self.paths[0].name.partition(".rank")[0]
        return str(self.paths[0].with_name(stem + _SUFFIX))


def recording_paths(given: Iterable[Path]) -> Iterator[Path]:
    """Yield the recordings of paths, those of a folder, and the ranks of a base name."""
    for path in given:
        if path.is_dir():
            yield from sorted(path.glob(f"*{_SUFFIX}"), key=_by_rank)
        elif not path.exists() and (ranks := sorted(rank_files(path), key=_by_rank)):
            yield from ranks
        else:
            yield path


def rank_files(base: Path) -> list[Path]:
    """Return the files of the ranks of `name.gradscope`: `name.rank0.gradscope` and so on."""
    stem = base.name.removesuffix(_SUFFIX)
    folder = base.parent
    files = folder.iterdir() if folder.is_dir() else ()
    return [
        file
        for file in files
        if file.name.startswith(f"{stem}.rank") and file.name.endswith(_SUFFIX)
    ]


def _by_rank(path: Path) -> tuple[str, int]:
    stem, _, number = path.name.removesuffix(_SUFFIX).rpartition(".rank")
    return (stem, int(number)) if number.isdecimal() else (path.name, 0)


def grouped(paths: Sequence[Path], recordings: "Sequence[Recording]") -> list[Loaded]:
    """Return recordings in groups: the ranks of a job together, every other one by itself.

    Raises:
        GradscopeError: There are ranks of several jobs, or a rank twice.
    """
    from gradscope.analysis.job import identity_of

    alone: list[Loaded] = []
    ranks: list[tuple[int, Path, Recording]] = []
    starts: list[tuple[str, int, float, Path]] = []
    for path, recording in zip(paths, recordings, strict=True):
        identity = identity_of(recording)
        if identity is None or identity.world_size == 1:
            alone.append(Loaded((path,), (recording,)))
        else:
            ranks.append((identity.rank, path, recording))
            starts.append((identity.job, identity.world_size, identity.started, path))
    _check_job(starts)
    ranks.sort(key=lambda one: one[0])
    for (number, path, _), (other, second, _) in pairwise(ranks):
        if number == other:
            raise GradscopeError(
                f"{str(path)!r} and {str(second)!r} are both of rank {number}",
                help="give one recording per rank",
            )
    if not ranks:
        return alone
    job = Loaded(tuple(path for _, path, _ in ranks), tuple(one for *_, one in ranks))
    return [job, *alone]


def _check_job(starts: "Sequence[tuple[str, int, float, Path]]") -> None:
    for job, size, started, path in starts[1:]:
        first = starts[0]
        if (job, size) != first[:2] or abs(started - first[2]) > _SECONDS:
            raise GradscopeError(
                f"{str(first[3])!r} and {str(path)!r} are ranks of different jobs",
                help="give the recordings of one job",
            )
