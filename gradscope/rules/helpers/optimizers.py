"""Facts on optimizers and their parameters: replaced, frozen, or omitted ones."""

from collections.abc import Iterable, Iterator
from functools import cached_property

from gradscope.analysis.windows import Windows
from gradscope.frozen import dataclass
from gradscope.recording.events import ZeroEvent, only
from gradscope.recording.evidence.batches import ProbeName
from gradscope.recording.evidence.parameters import CallerRecord, FreezeRecord
from gradscope.recording.evidence.training import OptimizerRecord
from gradscope.recording.norm_table import REACHES, norms_of
from gradscope.recording.records import CapturedStep, Recording, Site
from gradscope.rules.context import RuleContext

PROBE: ProbeName = "optimizers"

NO_OPTIMIZER = "the target has no optimizer"

NO_STEPPER = "no optimizer uses the gradients of the captured steps"
"""Reason to skip a rule for a run whose optimizers may step with gradients of other passes."""


@dataclass(frozen=True)
class Optimizers:
    """The optimizers of a recording."""

    context: RuleContext

    @cached_property
    def records(self) -> tuple[OptimizerRecord, ...]:
        """Records of all known optimizers."""
        return self.context.recording.evidence_of(OptimizerRecord)

    @cached_property
    def with_parameters(self) -> tuple[OptimizerRecord, ...]:
        """Optimizers that hold a parameter of the model, the target's own first."""
        return tuple(record for record in self.records if record.parameters)

    @cached_property
    def targets(self) -> OptimizerRecord | None:
        """Optimizer that makes the target's steps."""
        return next((record for record in self.records if record.is_targets), None)

    @cached_property
    def held(self) -> frozenset[int]:
        """Parameters that any optimizer holds; in a training run, at any time."""
        at_any_time = frozenset[int]() if self.context.run is None else self.context.run.held
        # A run may have several optimizers, and groups that are added later: what any of them ever
        # held is to be trained.
        return at_any_time.union(*(record.parameters for record in self.with_parameters))

    def skip_reason(self) -> str | None:
        """Return why nothing is known of the target's own optimizer."""
        if self.context.probe_skip_reason(PROBE) is not None:
            return self.context.probe_skip_reason(PROBE)
        return self.missing if self.targets is None else None

    @property
    def missing(self) -> str:
        """Reason to skip a rule if there is no optimizer."""
        return NO_OPTIMIZER if self.context.run is None else NO_STEPPER

    @property
    def without_update(self) -> str:
        """Reason to skip a rule if updates were not measured."""
        if self.context.run is None:
            return "the optimizer made no step"
        return "how far the steps moved the weights was not measured"


def positions(context: RuleContext, parameters: Iterable[int]) -> tuple[str, ...]:
    """Return the largest modules all of whose parameters are among these, else their names."""
    wanted = frozenset(parameters)
    records = context.recording.parameters
    found = []
    for index in sorted(wanted):
        path: str | None = context.owner(index)
        whole: str | None = None
        # The outermost module says more than a list of its parameters.
        while path is not None and _below(context, path) <= wanted:
            whole = path
            path = path.rpartition(".")[0] if path else None
        found.append(records[index].name if whole is None else whole or "the whole model")
    return tuple(dict.fromkeys(found))


def _below(context: RuleContext, path: str) -> frozenset[int]:
    prefix = f"{path}." if path else ""
    return frozenset(
        record.index for record in context.recording.parameters if record.name.startswith(prefix)
    )


def line_of_newer_model(context: RuleContext, step: int) -> Site | None:
    """Return the line that made new parameters which get gradients and no optimizer holds.

    Of a function that makes each of the models, it is the line that called it. None where it is not
    known, or where it was made before the optimizers were.
    """
    before: set[Site] = set()
    for captured in context.recording.captured_steps:
        if captured.step >= step:
            found = _line(captured, before)
            if found is not None:
                return found
        before.update(_lines_of_modules(captured.recording))
    return None


def _lines_of_modules(recording: Recording) -> Iterator[Site]:
    for module in recording.modules:
        if module.site is not None:
            yield recording.sites[module.site]


def _line(captured: CapturedStep, before: set[Site]) -> Site | None:
    recording = captured.recording
    records = recording.evidence_of(OptimizerRecord)
    if not records:
        return None
    held = frozenset[int]().union(*(record.parameters for record in records))
    # A parameter that is older than an optimizer was left out of it, which is another mistake.
    later = frozenset.intersection(*(frozenset(record.later) for record in records))
    fed = {one.parameter for one in recording.parameter_stats if one.reach == "gradient"}
    for index in sorted((fed & later) - held):
        module = recording.parameters[index].module
        position = recording.modules[module].site
        if position is None:
            continue
        made = recording.sites[position]
        # A line that has made modules before is in a function that makes each of the models. The
        # line that calls it tells them apart.
        return (_caller(recording, module) if made in before else None) or made
    return None


def _caller(recording: Recording, module: int) -> Site | None:
    """Return the line that called the function that made a module; None if unknown."""
    for record in recording.evidence_of(CallerRecord):
        if record.module == module:
            return recording.sites[record.site]
    return None


_ALIVE, _FROZEN = REACHES.index("gradient"), REACHES.index("frozen")


@dataclass(frozen=True, slots=True, kw_only=True)
class LateFreeze:
    """Frozen parameters that an optimizer moves on without a gradient."""

    optimizer: int
    """Index of the run's optimizer."""
    parameters: tuple[int, ...]
    step: int
    """First step after the freeze with a measured move."""
    ratio: float
    """Largest norm of an update over that of the weights."""
    freeze: Site | None
    """Line that froze them; None if there are several or none."""
    zero: ZeroEvent | None
    """Last call that fills gradients with zeros instead of removing them."""


def late_freezes(context: RuleContext) -> Iterator[LateFreeze]:
    """Yield, by optimizer, parameters that are frozen midway and move to the end of a run."""
    recording, windows = context.recording, context.shared(Windows)
    frozen = _frozen(recording)
    moved = {p: found for p, since in frozen.items() if (found := _moves(recording, p, since))}
    for position, record in enumerate(windows.optimizers):
        own = tuple(p for p in record.parameters if p in moved)
        if not own:
            continue
        zeros = (
            event
            for event in only(ZeroEvent, windows.events)
            if not event.set_to_none and event.optimizer in (None, position)
        )
        yield LateFreeze(
            optimizer=position,
            parameters=own,
            step=min(moved[p][0] for p in own),
            ratio=max(moved[p][1] for p in own),
            freeze=_freezing_line(recording),
            zero=next(zeros, None),
        )


def _frozen(recording: Recording) -> dict[int, int]:
    """Return the parameters that are frozen midway, by their index, with the first such step."""
    positions: dict[str, list[int]] = {}
    for record in recording.parameters:
        if record.requires_grad:
            positions.setdefault(record.name, []).append(record.index)
    found: dict[int, int] = {}
    for captured in recording.captured_steps:
        for record in captured.recording.parameters:
            known = positions.get(record.name, ())
            if len(known) == 1 and not record.requires_grad:  # else it is not sure which one it is
                found.setdefault(known[0], captured.step)
    for parameter, step in _measured_frozen(recording).items():
        found[parameter] = min(step, found.get(parameter, step))
    return found


def _measured_frozen(recording: Recording) -> dict[int, int]:
    """Return the same for steps that were measured and not captured."""
    norms, alive = norms_of(recording), set[int]()
    found: dict[int, int] = {}
    if _FROZEN not in norms.reaches:  # nearly always: much faster than reading each
        return found
    for step, parameter, reach in zip(norms.steps, norms.parameters, norms.reaches, strict=True):
        # A parameter that is frozen from the start was never trained, so it is not frozen midway.
        if reach == _ALIVE:
            alive.add(parameter)
        elif reach == _FROZEN and parameter in alive:
            found.setdefault(parameter, step)
    return found


def _moves(recording: Recording, parameter: int, since: int) -> tuple[int, float] | None:
    """Return the first measured move after a step, and the largest; None if it learns again."""
    norms = norms_of(recording)
    first, largest = None, 0.0
    for row in range(norms.rows_of(since).start, len(norms.steps)):
        if norms.parameters[row] != parameter:
            continue
        if norms.reaches[row] == _ALIVE:
            return None
        # A frozen parameter may keep a gradient of 0, with which momentum and weight decay still
        # move it.
        if norms.updates[row] > 0 and norms.weights[row] > 0:
            first = norms.steps[row] if first is None else first
            largest = max(largest, norms.updates[row] / norms.weights[row])
    return None if first is None else (first, largest)


def stops(context: RuleContext) -> dict[int, tuple[int, int]]:
    """Return the parameters that learn and are then frozen to the end, while others learn.

    With each, the first step without it, and the number of measured steps from there on.
    """
    norms = norms_of(context.recording)
    since: dict[int, int] = {}
    steps: dict[int, int] = {}
    alive: dict[int, int] = {}
    if _FROZEN not in norms.reaches:
        return {}
    for step, parameter, reach in zip(norms.steps, norms.parameters, norms.reaches, strict=True):
        if reach == _ALIVE:
            alive[parameter] = step
            since.pop(parameter, None)
            steps.pop(parameter, None)
        elif reach == _FROZEN and parameter in alive:
            since.setdefault(parameter, step)
            steps[parameter] = steps.get(parameter, 0) + 1
    last = max(alive.values(), default=-1)
    # Where nothing learns any more, the training is over or stopped as a whole.
    return {p: (step, steps[p]) for p, step in since.items() if last >= step}


def _freezing_line(recording: Recording) -> Site | None:
    lines = {
        captured.recording.sites[record.site]
        for captured in recording.captured_steps
        for record in captured.recording.evidence_of(FreezeRecord)
    }
    return lines.pop() if len(lines) == 1 else None


def superseded(context: RuleContext) -> frozenset[int]:
    """Return what optimizers hold, and a line outside of the model made other parameters of.

    As `weight_norm` does of a weight. No optimizer holds the others.
    """
    recording, held = context.recording, Optimizers(context).held
    made = {one.site for one in recording.parameters if one.index not in held}
    return frozenset(
        index
        for cut in recording.cuts
        # The model's own forward makes new tensors of its parameters, too.
        if cut.site in made - {None} and cut.call is None
        for index in cut.parameters
        if index in held
    )
