"""Finds the recordings that a command is given, and which of them are ranks of one job."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice, pairwise
from pathlib import Path
from typing import TYPE_CHECKING

from gradscope.cli.errors import show_note
from gradscope.errors import GradscopeError
from gradscope.progress import tell_stage

if TYPE_CHECKING:
    from gradscope.recording.records import Recording

_SUFFIX = ".gradscope"
_LIKENESS = 0.8
"""Similarity from which a missing recording's name is taken for a slip."""
_READ_WHOLE = 16
"""Number of ranks of a job that are read with all norms and captured steps. Of larger jobs these
are one of each kind: ranks that ended alike after the same events."""
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


def loaded_jobs(given: Iterable[Path]) -> list[Loaded]:
    """Read recordings, and return the ranks of a job together, every other one by itself.

    Args:
        given: Recordings, folders of them, and names that the ranks of a job share.

    Raises:
        GradscopeError: A file cannot be read, or ranks do not fit together.
    """
    found = read_jobs(list(dict.fromkeys(recording_paths(given))))
    for job in found:
        tell_missing(job)
    return list(map(read_in_full, found))


def read_jobs(paths: Sequence[Path]) -> list[Loaded]:
    """Read recordings, those of many ranks in outline, and return the ranks of a job together.

    Raises:
        GradscopeError: A file cannot be read, or ranks do not fit together.
    """
    from gradscope.recording.store import load_recording

    recordings = []
    for path in paths:
        tell_stage(f"reading {path}")
        recordings.append(load_recording(path, is_outline=is_large(paths)))
    return grouped(paths, recordings)


def tell_missing(job: Loaded) -> None:
    """Print which ranks of a job have no recording, where there are several."""
    from gradscope.analysis.ranks.job import Job

    if len(job.paths) > 1:
        _tell_missing(Job.of(job.recordings).missing, len(job.paths))


def _tell_missing(missing: Sequence[int], given: int) -> None:
    from gradscope.analysis.folding import joined_numbers

    if missing:
        size = len(missing) + given
        many = "ranks" if len(missing) > 1 else "rank"
        show_note(f"no recording of {many} {joined_numbers(missing)} of {size} was given")


def is_large(paths: Sequence[Path]) -> bool:
    """Return whether there are more recordings than are read in full."""
    return len(paths) > _READ_WHOLE


def loaded_job(given: Iterable[Path]) -> Loaded:
    """Read recordings that are one: of a single process, or of the ranks of a job.

    Raises:
        GradscopeError: A file cannot be read, or they are not one job.
    """
    jobs = loaded_jobs(given)
    if len(jobs) > 1:
        raise _not_one_job(job.paths[0] for job in jobs)
    return jobs[0]


def _not_one_job(paths: Iterable[Path]) -> GradscopeError:
    names = " and ".join(repr(str(path)) for path in islice(paths, 2))
    return GradscopeError(
        f"{names} are not of one job", help="give one recording, or the ranks of one job"
    )


def checked_ranks(paths: Sequence[Path]) -> tuple[Path, ...]:
    """Return the recordings of one job by rank, and print which ranks have none.

    Only their identities are read.

    Raises:
        GradscopeError: A file cannot be read, or they are not of one job.
    """
    from gradscope.recording.store import load_identity

    known = {path: load_identity(path) for path in paths}
    ranks = {path: one for path, one in known.items() if one is not None and one.world_size > 1}
    if len(ranks) < len(known):
        raise _not_one_job(known)
    _check_job([(one.job, one.world_size, one.started, path) for path, one in ranks.items()])
    found = sorted((one.rank, path) for path, one in ranks.items())
    _check_once(found)
    every = range(next(iter(ranks.values())).world_size)
    _tell_missing([rank for rank in every if rank not in dict(found)], len(found))
    return tuple(path for _, path in found)


def read_in_full(job: Loaded) -> Loaded:
    """Return a job; of outlines the first of each kind is read in full."""
    if not job.recordings[0].is_outline:
        return job
    from gradscope.analysis.ranks.job import kind_of
    from gradscope.recording.store import load_recording

    # A dict keeps the last of equal keys: backwards, that is the first of each kind.
    kinds = {kind_of(one): position for position, one in reversed([*enumerate(job.recordings)])}
    # The first rank stands for its job in a report.
    chosen = sorted({0, *kinds.values()})[:_READ_WHOLE]
    recordings = list(job.recordings)
    for position in chosen:
        recordings[position] = load_recording(job.paths[position])
    return Loaded(job.paths, tuple(recordings))


def recording_paths(given: Iterable[Path]) -> Iterator[Path]:
    """Yield the recordings of paths, those of a folder, and the ranks of a base name.

    Raises:
        GradscopeError: A folder holds none.
    """
    for path in given:
        if path.is_dir():
            found = sorted(path.glob(f"*{_SUFFIX}"), key=_by_rank)
            if not found:
                raise GradscopeError(f"the folder `{path}` holds no recording")
            begun = [one for one in found if not _is_empty(one)]
            for one in found if begun else ():
                if one not in begun:
                    show_note(f"`{one}` is empty: it is left out")
            yield from begun or found
        elif not path.exists() and (ranks := sorted(rank_files(path), key=_by_rank)):
            yield from ranks
        elif path.exists() and rank_files(path) and _is_rank(path):
            # Of a first rank that was killed before it could name its recording as a rank's.
            yield from (path, *sorted(rank_files(path), key=_by_rank))
        else:
            _check_recording(path)
            yield path


def check_not_script(path: Path) -> None:
    """Check that the script's name is not given for its recording's.

    Raises:
        GradscopeError: It is.
    """
    if path.suffix == ".py" and path.exists():
        raise GradscopeError(
            f"`{path}` is a Python file, not a recording",
            help=f"gradscope run --save {path.stem}{_SUFFIX} {path}",
        )


def _check_recording(path: Path) -> None:
    """Check for the mistakes of a newcomer: the script's name, or the suffix left out.

    Raises:
        GradscopeError: It is no recording.
    """
    check_not_script(path)
    if not path.exists() and path.parent.is_dir():
        raise GradscopeError(
            f"cannot read `{path}`: No such file or directory", help=_help_for_missing(path)
        )


def _help_for_missing(path: Path) -> str:
    """Return the recording that a missing one may be: of a similar name, else the newest."""
    from difflib import get_close_matches

    found = {one.name: one for one in path.parent.glob(f"*{_SUFFIX}")}
    for name in (path.name + _SUFFIX, path.name):
        if close := get_close_matches(name, found, n=1, cutoff=_LIKENESS):
            return f"did you mean `{found[close[0]]}`?"
    if not found:
        script = f"{path.name.removesuffix(_SUFFIX)}.py"
        return f"gradscope run --save {path.with_suffix(_SUFFIX)} {script} writes a recording"
    newest = max(found.values(), key=lambda one: one.stat().st_mtime)
    return f"the newest recording there is `{newest}`"


def are_recordings(text: str) -> bool:
    """Return whether an argument names a recording, the ranks of a job, or a folder of them."""
    if text.endswith(_SUFFIX):
        return True
    # An empty path would be the working directory.
    return bool(text) and next(Path(text).glob(f"*{_SUFFIX}"), None) is not None


def rank_files(base: Path) -> list[Path]:
    """Return the files of the ranks of `name.gradscope`: `name.rank0.gradscope` and so on."""
    stem = base.name.removesuffix(_SUFFIX)
    folder = base.parent
    files = folder.iterdir() if folder.is_dir() else ()
    # Not a glob: the name may hold signs of patterns, such as `[`.
    return [
        file
        for file in files
        if file.name.startswith(f"{stem}.rank") and file.name.endswith(_SUFFIX)
    ]


def _is_empty(path: Path) -> bool:
    """Return whether a recording holds nothing, as that of a run which has just begun."""
    return path.is_file() and not path.stat().st_size


def _is_rank(path: Path) -> bool:
    from gradscope.analysis.ranks.job import identity_of
    from gradscope.recording.store import load_recording

    return identity_of(load_recording(path, is_outline=True)) is not None


def _by_rank(path: Path) -> tuple[str, int]:
    stem, _, number = path.name.removesuffix(_SUFFIX).rpartition(".rank")
    # By number: rank 10 comes after rank 9.
    return (stem, int(number)) if number.isdecimal() else (path.name, 0)


def grouped(paths: Sequence[Path], recordings: "Sequence[Recording]") -> list[Loaded]:
    """Return recordings in groups: the ranks of a job together, every other one by itself.

    Raises:
        GradscopeError: There are ranks of several jobs, or a rank twice.
    """
    from gradscope.analysis.ranks.job import identity_of

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
    _check_once([(number, path) for number, path, _ in ranks])
    if not ranks:
        return alone
    job = Loaded(tuple(path for _, path, _ in ranks), tuple(one for *_, one in ranks))
    return [job, *alone]


def _check_once(ranks: "Sequence[tuple[int, Path]]") -> None:
    for (number, path), (other, second) in pairwise(ranks):
        if number == other:
            raise GradscopeError(
                f"{str(path)!r} and {str(second)!r} are both of rank {number}",
                help="give one recording per rank",
            )


def _check_job(starts: "Sequence[tuple[str, int, float, Path]]") -> None:
    for job, size, started, path in starts[1:]:
        first = starts[0]
        if (job, size) != first[:2] or abs(started - first[2]) > _SECONDS:
            raise GradscopeError(
                f"{str(first[3])!r} and {str(path)!r} are ranks of different jobs",
                help="give the recordings of one job",
            )
