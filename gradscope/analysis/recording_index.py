"""Indexes of a recording and of each of its steps, shared by derived facts and rules."""

from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import field, replace
from functools import cached_property
from typing import Self, TypeVar, cast, get_args
from weakref import finalize

from gradscope.analysis.surroundings import Surroundings
from gradscope.frozen import dataclass
from gradscope.recording.evidence.batches import ProbeName, ProbeRecord
from gradscope.recording.evidence.failures import AutogradErrorRecord
from gradscope.recording.evidence.parameters import RedrawRecord
from gradscope.recording.evidence.training import LibraryCall
from gradscope.recording.finding import RelatedLocation
from gradscope.recording.norm_table import NormTable
from gradscope.recording.records import (
    CapturedStep,
    NodeRecord,
    ParameterStat,
    Recording,
    Site,
    StepRecord,
    TensorRef,
    TensorStat,
)

Fact = TypeVar("Fact")

_FACTS: dict[int, dict[object, object]] = {}
"""By identity of a recording: facts of it that do not refer to it."""


def derived_once(recording: Recording, derive: Callable[[Recording], Fact]) -> Fact:
    """Return a fact of a recording, which is derived when it is first asked for.

    Args:
        recording: The recording.
        derive: Returns the fact, which must not refer to the recording: it lives as long.
    """
    known = _FACTS.get(id(recording))
    if known is None:
        known = _FACTS[id(recording)] = {}
        # The identity of a dead object is given to a new one, so the entry must go with it. At
        # exit, nothing is looked up any more.
        finalize(recording, _FACTS.pop, id(recording), None).atexit = False
    if derive not in known:
        known[derive] = derive(recording)
    return cast("Fact", known[derive])


@dataclass(frozen=True, slots=True, kw_only=True)
class StepView:
    """One step of a recording, indexed for joining."""

    recording: Recording
    step: StepRecord | None
    parameter_stats: dict[int, ParameterStat]
    """Statistics, by parameter."""
    tensor_stats: dict[TensorRef, TensorStat]
    input_norms: dict[tuple[int, int], float | None]
    """By module call and index of the input, if the input is used elsewhere too; None if the call
    did not use it.
    """
    nodes: tuple[NodeRecord, ...]
    """Nodes of the step's graph."""

    def measured(self, ref: TensorRef) -> TensorRef:
        """Return the tensor that this one shares its gradient with, itself where with none."""
        shared = self.recording.nodes[ref.node].same_as
        while shared is not None:
            ref = shared
            shared = self.recording.nodes[ref.node].same_as
        return ref


def first_step(recording: Recording) -> StepView:
    """Return the judged step; an empty view without one.

    It is the first that neither led up to it nor probed on from there.
    """
    return step_view(recording, next((s for s in recording.steps if s.kind == "step"), None))


def last_run_step(recording: Recording) -> StepView:
    """Return the last step of a training run, with the last measurements of each parameter.

    Optimizers take turns, and not every step is measured.
    """
    steps = [step for step in recording.steps if step.kind == "run"]
    finished = [step for step in steps if step.optimizer is not None] or steps
    view = step_view(recording, finished[-1] if finished else None)
    stats = recording.parameter_stats
    last = (
        # Rows of a `NormTable` become objects one by one: only the last ones are made.
        _last_rows(stats)
        if isinstance(stats, NormTable)
        else {one.parameter: row for row, one in enumerate(stats)}
    )
    return replace(
        view,
        parameter_stats={parameter: stats[row] for parameter, row in last.items()},
        nodes=view.nodes if view.step and view.step.graph is not None else (),
    )


def captured_lines(recording: Recording) -> Iterator[tuple[CapturedStep, int | None]]:
    """Yield the captured steps of a run, with the line (a site) of their backward."""
    if recording.captured_steps:
        sites = {(event.step, event.order): event.site for event in recording.events}
        for captured in recording.captured_steps:
            yield captured, sites.get((captured.step, captured.order))


def ended_by(recording: Recording) -> AutogradErrorRecord | None:
    """Return the exception that ended the judged step, None if there was none."""
    judged = first_step(recording).step
    errors = recording.evidence_of(AutogradErrorRecord)
    return next((error for error in errors if judged and error.step == judged.index), None)


def step_view(recording: Recording, step: StepRecord | None) -> StepView:
    """Return one step; an empty view for None."""
    number, graph = (None, None) if step is None else (step.index, step.graph)
    return StepView(
        recording=recording,
        step=step,
        parameter_stats={stat.parameter: stat for stat in _stats_of(recording, number)},
        tensor_stats={
            TensorRef(node=stat.node, slot=stat.slot): stat
            for stat in recording.tensor_stats
            if stat.step == number
        },
        input_norms={
            (stat.call, stat.position): stat.norm
            for stat in recording.input_stats
            if stat.step == number
        },
        nodes=tuple(node for node in recording.nodes if node.graph == graph),
    )


def _stats_of(recording: Recording, step: int | None) -> Iterable[ParameterStat]:
    stats = recording.parameter_stats
    if step is None:
        return ()
    if isinstance(stats, NormTable):
        return map(stats.__getitem__, stats.rows_of(step))
    return (stat for stat in stats if stat.step == step)


def _last_rows(norms: NormTable) -> dict[int, int]:
    """Return the last row of each parameter: most are among those of the last steps."""
    found: dict[int, int] = {}
    end = len(norms)
    while end and len(found) < len(norms.numels):
        start = bisect_left(norms.steps, norms.steps[end - 1], 0, end)
        measured = norms.parameters[start:end]
        if not found.keys() >= set(measured):
            # Later measurements are found first, so what was found stays.
            found = dict(zip(measured, range(start, end), strict=True)) | found
        end = start
    return dict(sorted(found.items()))


def created(node: NodeRecord) -> int:
    """Return when the forward made a node; leaves were there before."""
    return -1 if node.sequence is None else node.sequence


Index = TypeVar("Index")


def users_sites(recording: Recording) -> tuple[Site, ...]:
    """Return the sites of a run; a line of a trainer is replaced by the user's that called it."""
    callers = {one.site: one.caller for one in recording.evidence_of(LibraryCall)}
    sites = recording.sites
    return tuple(sites[callers.get(index, index)] for index in range(len(sites)))


@dataclass(frozen=True)
class RecordingIndex:
    """A recording with the indexes that rules share; each is built when it is first asked for."""

    recording: Recording
    run: Surroundings | None = None
    """Facts about the rest of the run, if one backward of a training run is judged."""
    _shared: dict[object, object] = field(default_factory=dict, compare=False, repr=False)

    def shared(self, kind: Callable[[Self], Index]) -> Index:
        """Return an index that several rules use, made of the case when it is first asked for."""
        if kind not in self._shared:
            self._shared[kind] = kind(self)
        return cast("Index", self._shared[kind])

    @cached_property
    def is_run(self) -> bool:
        """Whether the recording is of a script's own training steps."""
        return any(step.kind == "run" for step in self.recording.steps)

    @cached_property
    def first(self) -> StepView:
        """The judged step: neither a training step before it nor a probe."""
        return first_step(self.recording)

    @property
    def judged(self) -> int:
        """Index of the judged step, which equals the number of optimizer steps before it."""
        return 0 if self.first.step is None else self.first.step.index

    @cached_property
    def probes(self) -> tuple[StepView, ...]:
        """The steps made on a snapshot: number `i` is the backward after `i + 1` more steps."""
        return tuple(
            step_view(self.recording, step) for step in self.recording.steps if step.kind == "probe"
        )

    @cached_property
    def has_backward(self) -> bool:
        """Whether the first step got as far as a gradient."""
        return any(stat.gradient is not None for stat in self.first.tensor_stats.values())

    def probe_skip_reason(self, name: ProbeName) -> str | None:
        """Return why a probe did not run, None if it did.

        Raises:
            ValueError: There is no probe of that name.
        """
        if name not in get_args(ProbeName):
            raise ValueError(f"unknown probe {name!r}")
        for record in self.recording.evidence_of(ProbeRecord):
            if record.name == name:
                return record.skip_reason
        return "the recording holds no such probe"

    @cached_property
    def redrawn(self) -> frozenset[int]:
        """Parameters that get no gradient in the first step, but do with other random numbers."""
        records = self.recording.evidence_of(RedrawRecord)
        return frozenset(parameter for record in records for parameter in record.parameters)

    def site(self, index: int | None) -> Site | None:
        """Return the line at an index of the recording's sites."""
        return None if index is None else self.recording.sites[index]

    def users_line(self, site: Site) -> Site | None:
        """Return the user's line that led to one of an installed package; None if none is known.

        It is the innermost one of the calls of modules around what the package's line made, or the
        one that called the trainer.
        """
        recording = self.recording
        positions = {index for index, one in enumerate(recording.sites) if one == site}
        for called in recording.evidence_of(LibraryCall):
            if called.site in positions:
                return self.site(called.caller)
        around = [node.module_call for node in recording.nodes if node.site in positions]
        around += [cut.call for cut in recording.cuts if cut.site in positions]
        around += [call.index for call in recording.calls if call.site in positions]
        for position in around:
            while position is not None:
                call = recording.calls[position]
                line = self.site(call.site)
                if line is not None and not line.is_installed:
                    return line
                position = call.parent
        return None

    def related(
        self, site: int | Site | None, message: str, *, is_inside: bool = False
    ) -> RelatedLocation | None:
        """Return a line that takes part in a cause, None if unknown.

        Args:
            site: The line. For one of an installed package, the user's line that led to it.
            message: What it does.
            is_inside: Whether the package's line itself is meant.
        """
        position = self.site(site) if isinstance(site, int) else site
        if position is None:
            return None
        if position.is_installed and not is_inside:
            position = self.users_line(position) or position
        return RelatedLocation(
            file=position.file, line=position.line, message=message, source=position.source
        )

    def owner(self, parameter: int) -> str:
        """Return the path of the module that owns a parameter; empty for the model itself."""
        return self.recording.modules[self.recording.parameters[parameter].module].path

    def module_of(self, node: NodeRecord) -> str | None:
        """Return the path of the innermost module whose call made a node."""
        if node.module_call is None:
            return None
        return self.recording.modules[self.recording.calls[node.module_call].module].path

    def parameter_stat(self, parameter: int) -> ParameterStat | None:
        """Return the state of a parameter after the first step."""
        return self.first.parameter_stats.get(parameter)

    def tensor_stat(self, node: int, slot: int) -> TensorStat | None:
        """Return the first step's gradient of a tensor; for a view, that of its base."""
        return self.first.tensor_stats.get(self.first.measured(TensorRef(node=node, slot=slot)))

    @cached_property
    def successors(self) -> dict[int, tuple[TensorRef, ...]]:
        """By node: the tensors that its backward passes gradients to, its forward's inputs."""
        found: dict[int, list[TensorRef]] = {}
        for edge in self.recording.edges:
            found.setdefault(edge.source, []).append(TensorRef(node=edge.target, slot=edge.slot))
        return {node: tuple(refs) for node, refs in found.items()}

    @cached_property
    def users(self) -> dict[int, tuple[int, ...]]:
        """By node: the nodes whose forward took one of its outputs."""
        found: dict[int, list[int]] = {}
        for edge in self.recording.edges:
            found.setdefault(edge.target, []).append(edge.source)
        return {node: tuple(dict.fromkeys(nodes)) for node, nodes in found.items()}

    @cached_property
    def parameter_nodes(self) -> dict[int, int]:
        """By parameter: its node in the first step's graph, if it has one."""
        return {
            node.parameter: node.index for node in self.first.nodes if node.parameter is not None
        }

    def inputs(self, node: int) -> list[int]:
        """Return the nodes that an operation took; a factor that occurs twice does so here."""
        return [ref.node for ref in self.successors.get(node, ())]

    def behind_views(self, node: int, further: tuple[str, ...] = ()) -> NodeRecord:
        """Return the operation behind views, and behind further operations with one input.

        Args:
            node: Where to start.
            further: Beginnings of the names of such operations.
        """
        record = self.recording.nodes[node]
        while record.kind == "view" or record.operation.startswith(further):
            inputs = self.inputs(record.index)
            if len(inputs) != 1:
                break
            record = self.recording.nodes[inputs[0]]
        return record

    def consumers(self, node: int) -> Iterator[NodeRecord]:
        """Yield the operations that used a tensor, ignoring views of it."""
        waiting, seen = list(self.users.get(node, ())), set[int]()
        while waiting:
            user = waiting.pop(0)
            if user in seen:
                continue
            seen.add(user)
            record = self.recording.nodes[user]
            if record.kind == "view":
                waiting += self.users.get(user, ())
            else:
                yield record

    def behind(self, nodes: Iterable[int]) -> Iterator[NodeRecord]:
        """Yield some nodes and everything that they were computed from, nearest first."""
        waiting = deque(dict.fromkeys(nodes))
        seen = set(waiting)
        while waiting:
            node = waiting.popleft()
            yield self.recording.nodes[node]
            for ref in self.successors.get(node, ()):
                if ref.node not in seen:
                    seen.add(ref.node)
                    waiting.append(ref.node)

    def parameters_behind(self, nodes: Iterable[int]) -> frozenset[int]:
        """Return the parameters whose gradient comes through one of some nodes."""
        records = self.behind(nodes)
        return frozenset(record.parameter for record in records if record.parameter is not None)
