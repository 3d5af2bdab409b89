"""The optimizers of a script, and their steps."""

import ast
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from types import FrameType
from weakref import ref

from torch import Tensor
from torch.optim import Optimizer

from gradscope.capture.naming import optimizer_family
from gradscope.capture.source.lines import Line
from gradscope.capture.source.name_filters import name_filters
from gradscope.capture.source.statements import code_at
from gradscope.capture.training.event_log import number
from gradscope.capture.training.gradient_state import Entry, GradientState
from gradscope.capture.training.locations import (
    NOWHERE,
    Location,
    Locations,
    is_within,
    receiver,
    stem,
)
from gradscope.phrasing import literal
from gradscope.recording.evidence.training import OptimizerFamily, TrainedOptimizer


@dataclass(slots=True)
class Known:
    """An optimizer that was observed."""

    # Weak: the state of an optimizer that the script drops must be freed as without gradscope.
    optimizer: ref[Optimizer]
    index: int
    class_name: str
    family: OptimizerFamily
    location: Location
    name: str
    entries: list[Entry] = field(default_factory=list)
    ids: list[int] = field(default_factory=list)
    replaced: int | None = None
    joined: int | None = None
    """Index of the optimizer whose steps include its own."""
    parts: list["Known"] = field(default_factory=list)
    """Optimizers whose steps are part of its own."""
    weights: dict[int, float | None] = field(default_factory=dict)
    """By `id` of the entry: norm of the parameter at its last measurement."""
    rested: Line | None = None
    """Line of the script's function of the step that set its learning rate to 0."""
    base_rate: float | None = None
    """Learning rate that a `LambdaLR` multiplies by its function; None without one."""
    rate_function: Line | None = None
    """Line of this function."""
    planned_steps: int | None = None
    """Number of steps that its scheduler is planned for; None without such a number."""
    plateau: Line | None = None
    """Line that made its `ReduceLROnPlateau`."""
    schedule: Line | None = None
    """Line that made its scheduler."""
    undecayed: frozenset[int] = frozenset()
    """By `id`: parameters without weight decay, if other groups have one."""
    name_filters: tuple[tuple[str, Line], ...] = ()
    """Words, each with the line of its list, by which the script may have formed these groups."""
    is_changed: bool = True
    """Whether it differs from its record."""

    @property
    def all_entries(self) -> list[Entry]:
        """Parameters of the optimizer, and of those that step with it."""
        return [*self.entries, *(entry for part in self.parts for entry in part.entries)]

    def record(self, site_of: Callable[[Line | None], int | None]) -> TrainedOptimizer:
        """Return its record."""
        self.is_changed = False
        indices = dict.fromkeys(entry.index for entry in self.all_entries)
        return TrainedOptimizer(
            class_name=self.class_name,
            family=self.family,
            name=self.name,
            site=site_of(self.location.user or self.location.inner),
            parameters=tuple(index for index in indices if index is not None),
            replaced=self.replaced,
            joined=self.joined,
            rested=site_of(self.rested),
            base_rate=self.base_rate,
            rate_function=site_of(self.rate_function),
            planned_steps=self.planned_steps,
            plateau_site=site_of(self.plateau),
            schedule_site=site_of(self.schedule),
            undecayed=tuple(
                sorted(
                    entry.index
                    for entry in self.entries
                    if entry.index is not None and id(entry.parameter()) in self.undecayed
                )
            ),
            name_filters=tuple(
                (word, site)
                for word, line in self.name_filters
                if (site := site_of(line)) is not None
            ),
        )


class Optimizers:
    """All optimizers, in the order in which they were first observed."""

    def __init__(self, gradient_state: GradientState, locations: Locations) -> None:
        self._gradient_state, self._locations = gradient_state, locations
        self.known: list[Known] = []
        self._by_id: dict[int, Known] = {}

    def made(self, optimizer: Optimizer, frame: FrameType) -> None:
        """Record the construction of an optimizer."""
        step: FrameType | None = frame
        # If a user's class calls this, the line that made the optimizer is further out.
        while step is not None and step.f_code.co_name == "__init__" and _is_self(step, optimizer):
            step = step.f_back
        location = self._locations.of(step)
        self.add(optimizer, location, _assigned_name(location))

    def of(self, optimizer: Optimizer) -> Known:
        """Return the entry of an optimizer, with its current parameters."""
        known = self._find(optimizer)
        if known is None:
            return self.add(optimizer, NOWHERE, None)
        self._update(known, optimizer)
        return known

    def own(self, optimizer: Optimizer) -> Known | None:
        """Return the entry of an optimizer that is known itself; None for others."""
        known = self._by_id.get(id(optimizer))
        # The `id` of a freed optimizer may be that of a new one.
        return known if known is not None and known.optimizer() is optimizer else None

    def is_joined(self, index: int) -> bool:
        """Return whether others step with an optimizer, or it with them."""
        return any(one.joined == index for one in self.known)

    def joined(self, parts: Sequence[Known], others: Sequence[Known]) -> Known:
        """Return the entry that stands for several optimizers that step together.

        Args:
            parts: Optimizers that change parameters.
            others: Optimizers that step with them, and change nothing else.
        """
        leader = next((self.known[p.joined] for p in parts if p.joined is not None), parts[0])
        leader = next((one for one in parts if one.parts), leader)
        for one in (*parts, *others):
            if one is not leader and one.joined is None and not one.parts:
                one.joined, one.is_changed, leader.is_changed = leader.index, True, True
                leader.parts += [one] if one in parts else []
        return leader

    def _find(self, optimizer: Optimizer) -> Known | None:
        if (known := self.own(optimizer)) is not None:
            return known
        # A trainer's wrapper, which has the groups of the optimizer that it steps.
        groups = optimizer.param_groups
        others = ((known, known.optimizer()) for known in reversed(self.known))
        return next((known for known, one in others if one and one.param_groups is groups), None)

    def owner_name(self, parameter: Tensor) -> str | None:
        """Return `model` for a parameter of an optimizer made from `model.parameters()`."""
        key = id(parameter)
        # By `id`, because `in` on a list of tensors compares elements.
        known = next((one for one in self.known if key in one.ids), None)
        call = None if known is None else known.location.call()
        for given in call.args[:1] if call else ():
            for inner in ast.walk(given):
                match inner:
                    case ast.Call(func=ast.Attribute(attr="parameters" | "named_parameters")):
                        return receiver(inner)
        return None

    def name_by_step(self, known: Known, location: Location) -> None:
        """Name an optimizer by a call of its step, if its construction gave no name."""
        call = location.users_call() if known.name == known.class_name else None
        if call is None:
            return
        owner = call.func.value if isinstance(call.func, ast.Attribute) else None
        if location.user != location.inner and "step" not in ast.unparse(call.func):
            return  # for example `trainer.fit(model)`, which makes all the steps
        names = [stem(one) for one in ([owner] if owner else []) + call.args[:1]]
        # In `scaler.step(optimizer)`, it is the last one.
        name = next((name for name in reversed(names) if name), None)
        if name is not None:
            known.name, known.is_changed = name, True

    def add(self, optimizer: Optimizer, location: Location, name: str | None) -> Known:
        """Add an optimizer with its name and the location of its construction."""
        class_name = type(optimizer).__name__
        known = Known(
            ref(optimizer),
            len(self.known),
            class_name,
            optimizer_family(optimizer),
            location,
            name or class_name,
        )
        self._update(known, optimizer)
        _note_decay(known, optimizer)
        own = set(known.ids)
        others = (one.index for one in reversed(self.known) if not own.isdisjoint(one.ids))
        known.replaced = next(others, None)
        self._by_id[id(optimizer)] = known
        self.known.append(known)
        return known

    def _update(self, known: Known, optimizer: Optimizer) -> None:
        parameters = list(parameters_of(optimizer))
        ids = list(map(id, parameters))
        # Scripts add groups and replace parameters between steps; most steps change nothing.
        if ids == known.ids:
            return
        found = [self._gradient_state.add(parameter) for parameter in parameters]
        known.entries = [entry for entry in found if entry is not None]
        for entry in known.entries:
            entry.in_optimizer = True
        known.ids, known.is_changed = ids, True


def parameters_of(optimizer: Optimizer) -> Iterable[Tensor]:
    """Yield the tensors of an optimizer's groups."""
    for group in optimizer.param_groups:
        yield from group["params"]


def _note_decay(known: Known, optimizer: Optimizer) -> None:
    """Record which parameters have no weight decay where others do, and the script's filters."""
    decays = [bool(group.get("weight_decay")) for group in optimizer.param_groups]
    inner = known.location.inner
    # Where all groups decay, or none does, no filter has chosen.
    if inner is None or len(set(decays)) < 2:
        return
    groups = zip(optimizer.param_groups, decays, strict=True)
    known.undecayed = frozenset(id(p) for group, has in groups if not has for p in group["params"])
    file = inner.code.co_filename
    known.name_filters = tuple(
        (word, Line(code, one.line))
        for one in name_filters(file)
        if (code := code_at(file, one.line)) is not None
        for word in one.words
    )


def learning_rate(optimizer: Optimizer) -> object:
    """Return the learning rate of the first group, None if there is none."""
    return optimizer.param_groups[0].get("lr") if optimizer.param_groups else None


def describe(optimizer: Optimizer) -> str:
    """Return an optimizer's class and learning rates, as `AdamW(lr=0.001)`."""
    rates = [group.get("lr") for group in optimizer.param_groups]
    texts = dict.fromkeys(literal(rate) for rate in map(number, rates) if isinstance(rate, float))
    name = type(optimizer).__name__
    return f"{name}(lr={', '.join(texts)})" if texts else name


def _is_self(frame: FrameType, optimizer: Optimizer) -> bool:
    names = frame.f_code.co_varnames[:1]
    return any(frame.f_locals.get(name) is optimizer for name in names)


def _assigned_name(location: Location) -> str | None:
    """Return the variable to which the statement at a location assigns what it makes there."""
    match location.statement():
        case (
            ast.Assign(targets=[target, *_], value=value)
            | ast.AnnAssign(target=target, value=ast.expr() as value)
        ):
            position = location.position()
            return stem(target) if position is None else _name_of_part(target, value, position)
    return None


def _name_of_part(target: ast.expr, value: ast.expr, position: tuple[int, int]) -> str | None:
    """Return the name of the part of a value at a position: `b` in `a, b = f(), g()`."""
    match target, value:
        case ast.Tuple(elts=targets) | ast.List(elts=targets), (
            ast.Tuple(elts=values) | ast.List(elts=values)
        ):
            parts = zip(targets, values, strict=False)
            found = (
                _name_of_part(*part, position) for part in parts if is_within(part[1], *position)
            )
            return next(found, None) if len(targets) == len(values) else None
        case _, ast.List(elts=values) | ast.Tuple(elts=values):
            return _item(stem(target), enumerate(values), position)
        case _, ast.Dict(keys=keys, values=values):
            named = (key.value if isinstance(key, ast.Constant) else None for key in keys)
            return _item(stem(target), zip(named, values, strict=True), position)
    return stem(target)


def _item(
    owner: str | None, items: Iterable[tuple[object, ast.expr]], position: tuple[int, int]
) -> str | None:
    """Return the name of the item at a position, as `opts["g"]` or `opts[0]`."""
    key = next((key for key, value in items if is_within(value, *position)), None)
    return owner if owner is None or key is None else f"{owner}[{key!r}]"
