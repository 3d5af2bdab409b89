"""All models of a script as one, with the names that the run gives them."""

from weakref import ref

from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensor

from gradscope.capture.shards import parameters_of
from gradscope.capture.training.scene import Scene
from gradscope.probes.nonfinite_origins import by_storage, sources_of
from gradscope.probes.nonfinite_tracker import Source
from gradscope.recording.evidence.nonfinite import NonfiniteSource

_WRAPPERS = ("DataParallel", "DistributedDataParallel")


class Script(nn.Module):
    """Holds what a script trains; nothing is registered, and the modules know nothing of it."""

    def __init__(self, models: dict[str, nn.Module], loose: dict[str, Tensor]) -> None:
        super().__init__()
        self._modules.update(models)
        self._parameters.update(loose)  # type: ignore[arg-type]


def script_of(scene: Scene) -> Script:
    """Return the models that the script has called by now, and what its optimizers hold beside."""
    models = {
        name: _unwrapped(module) for name, module in scene.models.roots() if not _is_fake(module)
    }
    owned = {id(p) for module in models.values() for p in parameters_of(module)}
    loose: dict[str, Tensor] = {}
    # What a model keeps to itself is none of its parameters, unless an optimizer has it.
    held = [entry for entry in scene.ledger.entries if entry.in_optimizer]
    for entry in held or scene.ledger.entries:
        parameter = entry.parameter()
        if parameter is not None and id(parameter) not in owned and entry.index is not None:
            loose[f"parameter{entry.index}"] = parameter
    return Script(models, loose)


class LiveSources:
    """The parameters and buffers of the script's models, of which it keeps none alive."""

    def __init__(self, scene: Scene) -> None:
        self._scene = scene
        self._known: dict[int, tuple[ref[Tensor], NonfiniteSource, str | None]] | None = None

    def of(self, storage: int) -> Source | None:
        """Return the parameter or buffer with a storage, None where there is none."""
        if self._known is None:
            found = by_storage(sources_of(script_of(self._scene), ()))
            self._known = {key: (ref(one.tensor), *one[1:]) for key, one in found.items()}
        if storage not in self._known:
            return None
        reference, kind, name = self._known[storage]
        tensor = reference()
        return None if tensor is None else Source(tensor, kind, name)


def _is_fake(module: nn.Module) -> bool:
    """Return whether a model has no numbers: a copy that was made to be traced."""
    return any(isinstance(parameter, FakeTensor) for parameter in module.parameters())


def _unwrapped(module: nn.Module) -> nn.Module:
    inner = getattr(module, "module", None)
    if type(module).__name__ in _WRAPPERS and isinstance(inner, nn.Module):
        return inner
    return module
