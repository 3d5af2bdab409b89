"""The modules and parameters of a run as records, the models that own them, and their modes."""

import gc
import sys
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from types import FrameType, FunctionType
from typing import Any
from weakref import ref

from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.dropout import _DropoutNd

from gradscope.capture.compiler import is_traced
from gradscope.capture.naming import is_shard, name_model, shape_of
from gradscope.capture.source.definitions import Definitions
from gradscope.capture.source.statements import written_definitions
from gradscope.capture.training.event_log import Sites
from gradscope.capture.training.gradient_state import GradientState
from gradscope.capture.training.guard import Function, Guard, Patches
from gradscope.capture.training.locations import Location, Locations
from gradscope.capture.training.models.running_modules import deciding_frame
from gradscope.errors import GradscopeError
from gradscope.recording.records import ModuleRecord, ParameterRecord
from gradscope.target import members


def models_of(parameters: Mapping[int, Tensor]) -> Iterator[tuple[nn.Module, Tensor]]:
    """Yield the outermost modules that hold some of the parameters, each with one of these.

    Args:
        parameters: Parameters by `id`.
    """
    # By type: reading `__class__` of some objects runs their code.
    modules = [one for one in gc.get_objects() if issubclass(type(one), nn.Module)]
    inner = {id(child) for one in modules for _, child in members.named_children(one)}
    for module in modules:
        if id(module) not in inner:
            own = (id(p) for p in members.parameters(module) if id(p) in parameters)
            first = next(own, None)
            if first is not None:
                yield module, parameters[first]


_NO_MODULE = ModuleRecord(
    index=0,
    path="",
    aliases=(),
    class_name="",
    parent=None,
    in_model=True,
    training=True,
)
"""Name of the owner of parameters in a script without modules."""

_WRAPPERS = frozenset({"_fsdp_wrapped_module", "_orig_mod", "_checkpoint_wrapped_module"})
"""Parts of a name that wrappers add: the script's name has none of them."""


class ModelRecords:
    """Gives each module and parameter an index when it is first met."""

    def __init__(self, gradient_state: GradientState, sites: Sites) -> None:
        self._gradient_state, self._sites = gradient_state, sites
        self.definitions = Definitions()
        """Lines that made modules and parameters, as far as they were observed."""
        self._recorded: dict[int, tuple[ref[nn.Module], int]] = {}
        """By `id`: the index of a module."""
        self._modules = self._parameters = 0
        """Number of modules and parameters with an index."""
        self._new_modules: list[ModuleRecord] = []
        self._new_parameters: list[ParameterRecord] = []
        self.names: list[str] = []
        """Names of the recorded parameters, by index."""

    def take_new(self) -> tuple[tuple[ModuleRecord, ...], tuple[ParameterRecord, ...]]:
        """Return the modules and parameters added since the last call."""
        modules, parameters = tuple(self._new_modules), tuple(self._new_parameters)
        self._new_modules, self._new_parameters = [], []
        return modules, parameters

    def define(self, module: nn.Module) -> None:
        """Add the lines in the source of a model that existed before recording started."""
        known = self.definitions
        if all(one in known.modules for one in members.modules(module) if one is not module):
            return
        with suppress(GradscopeError):  # a lazy parameter has no shape yet
            written = written_definitions(name_model(module, None))
            for one, line in written.modules.items():
                known.modules.setdefault(one, line)
            for parameter, made in written.parameters.items():
                known.parameters.setdefault(parameter, made)

    def add(self, name: str, module: nn.Module) -> bool:
        """Add a model; return False if a lazy parameter of it has no shape yet."""
        try:
            named = name_model(module, None)
        except GradscopeError:
            return False
        indices: list[int] = []
        for one, record in zip(named.modules, named.module_records, strict=True):
            known = self._recorded.get(id(one))
            # Another module may have the `id` of one that was freed.
            if known is not None and known[0]() is one:
                indices.append(known[1])
                continue
            index = self._modules
            indices.append(index)
            self._recorded[id(one)] = (ref(one), index)
            self._add_module(
                replace(
                    record,
                    index=index,
                    path=_path(name, record.path),
                    aliases=tuple(_path(name, alias) for alias in record.aliases),
                    parent=None if record.parent is None else indices[record.parent],
                    site=self._sites.index(self.definitions.modules.get(one)),
                )
            )
        for parameter, found in zip(named.parameters, named.parameter_records, strict=True):
            entry = self._gradient_state.add(parameter)
            if entry is not None and entry.index is None:
                entry.index = self._parameters
                made = self.definitions.registration(parameter)
                self._add_parameter(
                    replace(
                        found,
                        index=entry.index,
                        name=_path(name, found.name),
                        aliases=tuple(_path(name, alias) for alias in found.aliases),
                        module=indices[found.module],
                        site=self._sites.index(None if made is None else made.line),
                    )
                )
        return True

    def add_loose(self) -> None:
        """Add the parameters that are in no model."""
        for entry in self._gradient_state.entries:
            parameter = entry.parameter()
            if entry.index is None and parameter is not None:
                if not self._modules:
                    self._add_module(_NO_MODULE)
                entry.index = index = self._parameters
                name = entry.name or f"parameter{index}"
                self._add_parameter(_loose(parameter, index, name))

    def _add_module(self, record: ModuleRecord) -> None:
        self._modules += 1
        self._new_modules.append(record)

    def _add_parameter(self, record: ParameterRecord) -> None:
        self._parameters += 1
        self.names.append(record.name)
        self._new_parameters.append(record)


def _path(root: str, path: str) -> str:
    # A script unwraps a data-parallel model by `.module`, and means the same model.
    root = root.removesuffix(".module")
    parts = [part for part in path.removeprefix("module.").split(".") if part not in _WRAPPERS]
    # A data-parallel wrapper may hold another wrapper, as after `torch.compile`.
    path = ".".join(parts).removeprefix("module.")
    return f"{root}.{path}" if path and path != "module" else root


def _loose(parameter: Tensor, index: int, name: str) -> ParameterRecord:
    return ParameterRecord(
        index=index,
        name=name,
        aliases=(),
        module=0,
        shape=shape_of(parameter),
        device=str(parameter.device),
        numel=parameter.numel(),
        requires_grad=parameter.requires_grad,
        optimizer_group=None,
        is_shard=is_shard(parameter),
    )


@dataclass(slots=True)
class Mode:
    """A model was called in eval mode while gradients were enabled."""

    name: str
    location: Location
    """Line that set it to eval mode, or line of the call if that was not observed."""
    dropout: int
    batchnorm: int


FROZEN, TRAINABLE, HELD = range(3)
"""No parameter of a model requires grad; some do; an optimizer holds some of these."""


@dataclass(slots=True)
class Root:
    """A module that was called from outside any other."""

    module: ref[nn.Module]
    name: str
    """The script's name for it."""
    mode_dependent: list[ref[nn.Module]] = field(default_factory=list)
    is_recorded: bool = False
    rank: int = FROZEN
    ranked: int | None = None
    """Number of backwards at the time its rank was computed."""


@dataclass(slots=True)
class Forwards:
    """The calls of models since the last backward."""

    rows: int | None = None
    batch: str = ""
    preference: tuple[int, bool] = (-1, False)
    """Rank of the model whose batch is shown, and whether it was in training mode."""
    modes: dict[str, Mode | None] = field(default_factory=dict)
    """By model; None if its last call was in training mode."""
    are_unobserved: bool = False
    """Whether there may be calls that were not observed, in a step that was first only compared."""


class EvalModes:
    """Observes `Module.eval()`, which calls `train(False)` of each submodule."""

    def __init__(self, guard: Guard, locations: Locations) -> None:
        self._guard, self._locations = guard, locations
        self._lines: dict[int, tuple[ref[nn.Module], Location]] = {}
        """By `id` of the module."""
        self._outermost: Location | None = None

    def install(self, patches: Patches) -> None:
        """Start observing."""
        patches.wrap(nn.Module, "train", self._wrap)

    def line_of(self, module: nn.Module) -> Location | None:
        """Return the line that last set a module to eval mode, None if that was not observed."""
        known = self._lines.get(id(module))
        return known[1] if known is not None and known[0]() is module else None

    def is_in_train_mode(self, module: nn.Module) -> bool:
        """Return whether a module trains: its own flag may have been set without its children.

        Assigning `module.training = True` after `module.eval()` leaves every child in eval mode.
        Children that other lines put there, as frozen batch norms, are meant to stay in it.
        """
        if not module.training:
            return False
        line = self.line_of(module)
        children = [] if line is None else [one for _, one in members.named_children(module)]
        return not children or any(one.training or self.line_of(one) != line for one in children)

    def _wrap(self, original: Function) -> Function:
        def train(module: nn.Module, mode: bool = True) -> Any:  # noqa: ANN401
            if is_traced() or mode or not self._guard.active:
                return original(module, mode)
            frame = sys._getframe(1)
            # `train` calls itself for every submodule, from inside torch. Only the
            # outermost call is made by a line of the script.
            is_outermost = self._outermost is None
            if is_outermost:
                self._outermost = self._guard.run(self._decision, frame)
            try:
                self._guard.run(self._note, module)
                return original(module, mode)
            finally:
                if is_outermost:
                    self._outermost = None

        return train

    def _decision(self, frame: FrameType) -> Location:
        users = self._locations.users(frame)
        decides = deciding_frame(users[0]) if users else frame
        return self._locations.of(frame if users and decides is users[0] else decides)

    def _note(self, module: nn.Module) -> None:
        if self._outermost is not None:
            key = id(module)
            self._lines[key] = (ref(module, lambda _: self._forget(key)), self._outermost)

    def _forget(self, key: int) -> None:
        known = self._lines.get(key)
        if known is not None and known[0]() is None:  # not another module at the same address
            del self._lines[key]


_DROPOUTS = frozenset(
    {"alpha_dropout", "dropout", "dropout1d", "dropout2d", "dropout3d", "feature_alpha_dropout"}
)
"""Functions that a module calls with `training=self.training`."""


def depends_on_mode(module: nn.Module) -> bool:
    """Return whether a module behaves differently in training and eval mode."""
    if isinstance(module, _DropoutNd):
        return module.p > 0
    if isinstance(module, _BatchNorm):
        # Without running statistics, eval mode normalizes by the batch too.
        return module.track_running_stats
    # They pass their own rate to a function, and hold no dropout module.
    if isinstance(module, nn.RNNBase | nn.MultiheadAttention):
        return module.dropout > 0
    return _drops_by_function(type(module)) and _may_drop(module)


def _drops_by_function(kind: type[nn.Module]) -> bool:
    """Return whether a method calls a dropout function, and reads `self.training`."""
    codes = (one.__code__ for one in vars(kind).values() if isinstance(one, FunctionType))
    is_own = not kind.__module__.startswith("torch.")
    return is_own and any(
        "training" in code.co_names and not _DROPOUTS.isdisjoint(code.co_names) for code in codes
    )


def _may_drop(module: nn.Module) -> bool:
    """Return whether a rate that a module stores is above 0; the rate may be none of its own."""
    rates = [
        value
        for name, value in vars(module).items()
        if isinstance(value, int | float) and ("drop" in name or name == "p")
    ]
    return not rates or any(rate > 0 for rate in rates)
