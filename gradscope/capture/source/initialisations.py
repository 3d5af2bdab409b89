"""Finds the line that initialized a parameter by the functions of `torch.nn.init`."""

import functools
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from torch import Tensor, nn
from torch._C import DisableTorchFunction
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils.weak import WeakTensorKeyDictionary

from gradscope.capture.compiler import follow_original, unfollowed
from gradscope.capture.frames import uncounted
from gradscope.capture.source.lines import Caller, Line


class Initialisation(NamedTuple):
    """A function of `torch.nn.init` filled a tensor."""

    function: str
    line: Line


class _Place(NamedTuple):
    """Elements of a tensor, whatever its name."""

    storage: StorageWeakRef
    """Not an address: memory of a freed tensor may be reused by another one."""
    offset: int
    numel: int


@dataclass(slots=True)
class Initialisations:
    """The last initialization of each tensor."""

    _parameters: WeakTensorKeyDictionary = field(default_factory=WeakTensorKeyDictionary)
    _storages: dict[_Place, Initialisation] = field(default_factory=dict)
    """By elements: for tensors such as `layer.weight.data`, which are freed at once."""

    def of(self, parameter: Tensor) -> Initialisation | None:
        """Return the last initialization of a parameter, None if none was observed."""
        found = self._stored(parameter)
        return found or self._parameters.get(parameter)

    @unfollowed
    def note(self, tensor: Tensor, initialisation: Initialisation) -> None:
        """Record an initialization of a tensor."""
        position = _position(tensor)
        if position is not None:
            self._storages.pop(position, None)
        if isinstance(tensor, nn.Parameter):
            self._parameters[tensor] = initialisation
        elif position is not None:
            self._storages[position] = initialisation

    def _stored(self, tensor: Tensor) -> Initialisation | None:
        position = _position(tensor)
        return None if position is None else self._storages.get(position)


def _position(tensor: Tensor) -> _Place | None:
    try:
        storage = StorageWeakRef(tensor.untyped_storage())
    except (NotImplementedError, RuntimeError):  # tensors without memory of their own
        return None
    return _Place(storage, int(tensor.storage_offset()), tensor.numel())


@contextmanager
def watch_initialisations() -> Iterator[Initialisations]:
    """Record the tensors that functions of `torch.nn.init` fill while the block runs."""
    found, caller = Initialisations(), Caller()

    def noting(name: str, original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        @uncounted
        def fill(*args: Any, **kwargs: Any) -> Any:  # noqa: ANN401
            result = original(*args, **kwargs)
            line = caller.line(sys._getframe(1))
            if isinstance(result, Tensor) and line is not None:
                with DisableTorchFunction():  # the user's modes need not see this
                    found.note(result, Initialisation(name, line))
            return result

        follow_original(fill, original)
        return fill

    originals = {
        name: function
        for name, function in vars(nn.init).items()
        if name.endswith("_") and not name.startswith("_") and callable(function)
    }
    ours = {name: noting(name, original) for name, original in originals.items()}
    for name, function in ours.items():
        setattr(nn.init, name, function)
    try:
        yield found
    finally:
        for name, function in ours.items():
            if getattr(nn.init, name) is function:  # else other code has replaced it since
                setattr(nn.init, name, originals[name])
