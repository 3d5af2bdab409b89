"""Parameters of a job, each with the ranks that hold it, a part or a replica of it."""

import math
from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace

from gradscope.analysis.norms import AGREEMENT, agree
from gradscope.analysis.ranks.job import Job, Rank
from gradscope.frozen import dataclass
from gradscope.recording.evidence.ranks import ParameterPlacement
from gradscope.recording.records import ModuleRecord, ParameterRecord, Recording, Site

Holder = tuple[Rank, int]
"""A rank, and the index of a parameter in its recording."""


@dataclass(frozen=True, slots=True)
class WholeParameter:
    """A parameter of a job, and the ranks that hold it or a part of it."""

    name: str
    """Its name in the job: that of the first rank that holds it."""
    shape: tuple[int, ...]
    placement: ParameterPlacement | None
    holders: tuple[Holder, ...]
    """Ranks that hold it, by number."""

    @property
    def is_sharded(self) -> bool:
        """Whether each rank holds only a part."""
        return self.placement is not None and self.placement.kind == "sharded"

    @property
    def with_elements(self) -> tuple[Holder, ...]:
        """Ranks that hold elements of it: those without any have no gradient."""
        return tuple(
            (rank, index)
            for rank, index in self.holders
            if rank.recording.parameters[index].numel > 0
        )

    @property
    def is_complete(self) -> bool:
        """Whether all parts were recorded."""
        if self.placement is None or not self.is_sharded:
            return True
        return len(self.holders) % math.prod(size for _, size in self.placement.mesh) == 0


def whole_parameters(job: Job) -> list[WholeParameter]:
    """Return the parameters of a job: those of the first rank, then those that only others hold.

    Ranks hold the same parameter if its name and its whole shape are the same. Where stages of a
    pipeline give one name to different parameters, those of a later rank are named after it.
    """
    held: dict[tuple[str, tuple[int, ...]], list[Holder]] = {}
    for rank in job.ranks:
        for one in rank.recording.parameters:
            key = (one.name, _shape(rank, one))
            held.setdefault(key, []).append((rank, one.index))
    names: set[str] = set()
    found = []
    for (name, shape), holders in held.items():
        placement = holders[0][0].placements.get(name)
        for group in _apart(job, name, placement, holders):
            unique = f"rank{group[0][0].number}.{name}" if name in names else name
            names.add(unique)
            found.append(WholeParameter(unique, shape, placement, tuple(group)))
    first = job.first.recording
    return sorted(found, key=lambda one: one.holders[0][0].recording is not first)


def _apart(
    job: Job, name: str, placement: ParameterPlacement | None, holders: Sequence[Holder]
) -> list[list[Holder]]:
    """Return the holders of a parameter, those of different stages of a pipeline apart.

    Stages have weights of their own. Ranks that train one model have the same, unless they are
    out of step.
    """
    copies = 1 if placement is None else max(placement.copies, 1)
    is_copy = job.is_by_hand or (job.is_data_parallel and copies == 1)
    if is_copy or len(holders) <= copies or (placement and placement.kind == "sharded"):
        return [list(holders)]
    step = next(iter(job.common_steps("weight")), 0)
    groups: list[tuple[float, list[Holder]]] = []
    for holder in holders:
        weight = holder[0].squares("weight", step).get(name, math.nan)
        same = (group for known, group in groups if agree((known, weight), 2 * AGREEMENT))
        group = next(same, None)
        if group is None:
            groups.append((weight, [holder]))
        else:
            group.append(holder)
    return [group for _, group in groups]


def _shape(rank: Rank, one: ParameterRecord) -> tuple[int, ...]:
    placement = rank.placements.get(one.name)
    return one.shape.dims if placement is None else placement.shape


def with_parameters(
    recording: Recording, wholes: Iterable[WholeParameter], joined: Collection[str]
) -> Recording:
    """Return the recording of the first rank with other parameters, and their modules.

    Args:
        recording: The recording.
        wholes: The parameters, those of the first rank first.
        joined: Names of those whose parts are joined.
    """
    models = _Modules(recording)
    found = []
    for index, whole in enumerate(wholes):
        rank, position = whole.holders[0]
        one = rank.recording.parameters[position]
        if whole.name in joined:
            shape = replace(one.shape, dims=whole.shape)
            one = replace(one, shape=shape, numel=math.prod(whole.shape), is_shard=False)
        if rank.recording is not recording:
            prefix = whole.name.removesuffix(one.name)
            one = replace(
                one,
                index=index,
                name=whole.name,
                aliases=tuple(prefix + alias for alias in one.aliases),
                module=models.of(rank.recording, one.module, prefix),
                site=models.site(rank.recording, one.site),
            )
        found.append(one)
    return replace(
        recording,
        parameters=tuple(found),
        modules=tuple(models.records),
        sites=tuple(models.sites),
    )


class _Modules:
    """The modules of the first rank, and those of others that hold more parameters."""

    def __init__(self, recording: Recording) -> None:
        self.records = list(recording.modules)
        self.sites = list(recording.sites)
        self._by_path = {one.path: one.index for one in recording.modules}
        self._by_site: dict[Site, int] = {}

    def of(self, recording: Recording, index: int, prefix: str) -> int:
        """Return the index of a module of a rank, which is added if the first rank has none such.

        Args:
            recording: Recording of the rank.
            index: Index of the module in it.
            prefix: What its path begins with here.
        """
        one = recording.modules[index]
        path = prefix + one.path
        if path not in self._by_path:
            parent = None if one.parent is None else self.of(recording, one.parent, prefix)
            self._by_path[path] = len(self.records)
            self.records.append(self._added(recording, one, path, parent))
        return self._by_path[path]

    def _added(
        self, recording: Recording, one: ModuleRecord, path: str, parent: int | None
    ) -> ModuleRecord:
        site = self.site(recording, one.site)
        return replace(
            one, index=len(self.records), path=path, aliases=(), parent=parent, site=site
        )

    def site(self, recording: Recording, index: int | None) -> int | None:
        """Return the index of a line of a rank, which is added."""
        if index is None:
            return None
        site = recording.sites[index]
        if site not in self._by_site:
            self._by_site[site] = len(self.sites)
            self.sites.append(site)
        return self._by_site[site]
