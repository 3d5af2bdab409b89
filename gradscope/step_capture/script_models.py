"""Treats all models of a script as one, with their names in the run."""

from collections.abc import Collection
from dataclasses import replace
from weakref import ref

from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensor
from torch.nn.parameter import is_lazy

from gradscope.capture.naming import NamedModel, name_model, parameters_of
from gradscope.capture.tensor_references import WeakTensor
from gradscope.capture.training.state import TrainingState
from gradscope.probes.forward.nonfinite_origins import Source, by_storage, sources_of
from gradscope.recording.evidence.failures import NonfiniteSource
from gradscope.target import members

_WRAPPERS = ("DataParallel", "DistributedDataParallel")


class Script(nn.Module):
    """Holds the models of a script. Nothing is registered, so the modules are not changed."""

    def __init__(self, models: dict[str, nn.Module], loose: dict[str, Tensor]) -> None:
        super().__init__()
        # Into the dictionaries, because `add_module` would run hooks, and refuses names with dots.
        self._modules.update(models)
        self._parameters.update(loose)  # type: ignore[arg-type]


def script_of(training: TrainingState) -> Script:
    """Return the models that the script has called so far, and further optimizer parameters."""
    models = {
        name: _unwrapped(module) for name, module in training.models.roots() if not _is_fake(module)
    }
    owned = {id(p) for module in models.values() for p in parameters_of(module)}
    return Script(models, _loose(training, owned))


class ScriptNames:
    """Names of a script's models and parameters, renewed when something changes.

    Models and parameters are not kept alive.
    """

    def __init__(self) -> None:
        self._known: tuple[object, ...] = ()
        self._records: NamedModel | None = None
        """Names without references to models and parameters."""
        self._modules: list[ref[nn.Module]] = []
        self._parameters: list[WeakTensor[nn.Parameter]] = []

    def of(self, training: TrainingState) -> tuple[Script, NamedModel]:
        """Return the result of `script_of`, and the names.

        Raises:
            GradscopeError: A lazy parameter has no shape before the model's first run.
        """
        models = {name: _unwrapped(module) for name, module in training.models.roots()}
        walk = _Walk()
        for name, module in models.items():
            walk.go(name, module)
        loose = _loose(training, walk.parameters)
        for name, parameter in loose.items():
            walk.meet(name, parameter)
        known = tuple(walk.met)
        modules = [m for kept in self._modules if (m := kept()) is not None]
        parameters = [p for held in self._parameters if (p := held()) is not None]
        is_whole = len(modules) + len(parameters) == len(self._modules) + len(self._parameters)
        if self._records is not None and is_whole and known == self._known:
            script = Script(models, loose)
            return script, replace(self._records, modules=[script, *modules], parameters=parameters)
        script = script_of(training)
        named = name_model(script, None)
        # The tensors that replace sharded parameters change with each forward.
        is_all = len(script._modules) == len(models) and not named.shards
        self._known = known if is_all else ()
        self._records = replace(named, modules=[], parameters=[]) if is_all else None
        self._modules = [ref(module) for module in named.modules[1:]]
        self._parameters = [WeakTensor(parameter) for parameter in named.parameters]
        return script, named


class _Walk:
    """Collects what distinguishes models: all that their records depend on."""

    def __init__(self) -> None:
        self.met: list[object] = []
        self.parameters: set[int] = set()
        """`id`s of the parameters."""
        self._modules: set[int] = set()

    def go(self, name: str, module: nn.Module) -> None:
        """Visit a module and its submodules."""
        self.met += (name, id(module), module.training)
        if id(module) in self._modules:
            return
        self._modules.add(id(module))
        for local, parameter in module._parameters.items():
            if parameter is not None:
                self.meet(local, parameter)
        for local, child in module._modules.items():
            if child is not None:
                self.go(local, child)
        # Ends the module, so that moving a child elsewhere shows.
        self.met.append(None)

    def meet(self, name: str, parameter: Tensor) -> None:
        """Visit a parameter."""
        self.parameters.add(id(parameter))
        self.met += (name, id(parameter), parameter.requires_grad, parameter.dtype)
        if not is_lazy(parameter):
            self.met += (parameter.shape, parameter.device)


def _loose(training: TrainingState, owned: Collection[int]) -> dict[str, Tensor]:
    """Return the parameters of no model, given the `id`s of owned ones."""
    loose: dict[str, Tensor] = {}
    # Private tensors of a model are not its parameters, unless an optimizer has them.
    held = [entry for entry in training.gradient_state.entries if entry.in_optimizer]
    for entry in held or training.gradient_state.entries:
        parameter = entry.parameter()
        if parameter is not None and id(parameter) not in owned and entry.index is not None:
            loose[f"parameter{entry.index}"] = parameter
    return loose


class LiveSources:
    """The parameters and buffers of the script's models, without keeping them alive."""

    def __init__(self, training: TrainingState) -> None:
        self._training = training
        self._known: dict[int, tuple[WeakTensor[Tensor], NonfiniteSource, str | None]] | None = None

    def of(self, storage: int) -> Source | None:
        """Return the parameter or buffer with a storage, None if there is none."""
        if self._known is None:
            found = by_storage(sources_of(script_of(self._training), ()))
            self._known = {key: (WeakTensor(one.tensor), *one[1:]) for key, one in found.items()}
        if storage not in self._known:
            return None
        reference, kind, name = self._known[storage]
        tensor = reference()
        return None if tensor is None else Source(tensor, kind, name)


def _is_fake(module: nn.Module) -> bool:
    """Return whether a model has no values: a copy made for tracing."""
    return any(isinstance(parameter, FakeTensor) for parameter in members.parameters(module))


def _unwrapped(module: nn.Module) -> nn.Module:
    if type(module).__name__ not in _WRAPPERS:
        return module
    inner = getattr(module, "module", None)
    return inner if isinstance(inner, nn.Module) else module
