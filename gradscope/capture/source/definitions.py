"""Finds the lines that registered modules and parameters, initialized them, and made optimizers."""

import functools
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import FrameType, MethodType
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary, WeakSet, ref

import torch
from torch import Tensor, nn
from torch._C import DisableTorchFunction
from torch.multiprocessing.reductions import StorageWeakRef
from torch.nn.modules.module import (
    register_module_module_registration_hook,
    register_module_parameter_registration_hook,
)
from torch.utils.weak import WeakIdKeyDictionary

from gradscope.capture.compiler import follow_original, is_traced, unfollowed, untraced
from gradscope.capture.interpreter import uncounted
from gradscope.capture.source.lines import INSTALLED, Caller, Line, line_that_chooses
from gradscope.capture.tensor_references import allow_swaps, by_tensor
from gradscope.target import members


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

    _parameters: WeakIdKeyDictionary = field(default_factory=by_tensor)
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
            # The last filling counts, under whichever key the one before was noted.
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


_CALL = nn.Module._call_impl.__code__

_MOST_MADE = 100_000
"""Maximum number of modules whose makers are known: a script may make some in every step."""


class Registration(NamedTuple):
    """A parameter was registered on a module."""

    module: ref[nn.Module]
    name: str
    line: Line | None
    order: int
    """Position among all recorded definitions, ascending."""
    in_forward: bool = False
    """Whether a module's forward was running."""


class Replacement(NamedTuple):
    """Another parameter took the place of a parameter, or another module that of its module."""

    module: ref[nn.Module]
    """Module in which it happened."""
    name: str
    """Name of the parameter in that module, as `head.weight`."""
    line: Line | None


class Construction(NamedTuple):
    """An optimizer was constructed."""

    line: Line | None
    order: int
    """Position among all recorded definitions, ascending."""
    given: Line | None = None
    """Line that called the helper, if the caller and not the helper chose the parameters."""


@dataclass(slots=True)
class Definitions:
    """The lines that made modules, parameters and optimizers, as far as they were observed."""

    modules: WeakKeyDictionary[nn.Module, Line] = field(default_factory=WeakKeyDictionary)
    """`self.head = nn.Linear(…)`; for a module registered again, its first line."""
    callers: WeakKeyDictionary[nn.Module, Line] = field(default_factory=WeakKeyDictionary)
    """By module: the line that called the function in which it was registered first."""
    replacements: WeakKeyDictionary[nn.Module, Line] = field(default_factory=WeakKeyDictionary)
    """By module that replaced another one under the same name: the line."""
    parameters: WeakIdKeyDictionary = field(default_factory=by_tensor)
    """By parameter: its first `Registration`."""
    replaced: WeakIdKeyDictionary = field(default_factory=by_tensor)
    """By parameter that was replaced in a module: its last `Replacement`."""
    optimizers: WeakKeyDictionary[torch.optim.Optimizer, Construction] = field(
        default_factory=WeakKeyDictionary
    )
    """Every optimizer, in order of construction."""
    loaded: WeakSet[nn.Module] = field(default_factory=WeakSet)
    """Modules whose `load_state_dict` was called."""
    initialisations: Initialisations = field(default_factory=Initialisations)

    def replacement(self, parameter: Tensor) -> Replacement | None:
        """Return where a parameter was replaced in a module, None if that was not observed."""
        found: Replacement | None = self.replaced.get(parameter)
        return found

    def registration(self, parameter: Tensor) -> Registration | None:
        """Return where a parameter was first registered, None if that was not observed."""
        found: Registration | None = self.parameters.get(parameter)
        return found

    def let_stand_in(
        self, old: torch.optim.Optimizer | None, new: torch.optim.Optimizer | None
    ) -> None:
        """Treat an optimizer as constructed where the one was whose steps it makes."""
        if old is not None and new is not None and old is not new:
            made = self.optimizers.pop(old, None)
            if made is not None:
                self.optimizers[new] = made


@contextmanager
def watch_definitions() -> Iterator[Definitions]:
    """Record the lines of definitions made while the block runs."""
    allow_swaps()
    watch = _Watch()
    handles = (
        register_module_module_registration_hook(watch.note_module),
        register_module_parameter_registration_hook(watch.note_parameter),
    )
    original = torch.optim.Optimizer.__init__

    @functools.wraps(original)
    @uncounted
    def noted(optimizer: torch.optim.Optimizer, *args: Any, **kwargs: Any) -> None:  # noqa: ANN401
        if not is_traced():
            watch.note_optimizer(optimizer)
        original(optimizer, *args, **kwargs)

    torch.optim.Optimizer.__init__ = noted  # type: ignore[method-assign,assignment]
    try:
        with _watch_weights(watch), watch_initialisations() as watch.found.initialisations:
            yield watch.found
    finally:
        if torch.optim.Optimizer.__init__ is noted:  # else other code has replaced it since
            torch.optim.Optimizer.__init__ = original  # type: ignore[method-assign]
        for handle in handles:
            handle.remove()


@contextmanager
def _watch_weights(watch: "_Watch") -> Iterator[None]:
    """Record copies of modules, and loaded ones, while the block runs: torch has no hook for it."""
    copied: Callable[[nn.Module, Any], None] = nn.Module.__setstate__
    loaded = nn.Module.load_state_dict

    @functools.wraps(copied)
    @uncounted
    def note_copy(module: nn.Module, state: Any) -> None:  # noqa: ANN401
        copied(module, state)
        if not is_traced():
            watch.note_copy(module)

    note_load = _NotedLoading(loaded, watch.found.loaded)
    made = nn.Module.__init__
    note_making = _NotedMaking(made, watch)
    nn.Module.__setstate__ = note_copy  # type: ignore[method-assign]
    nn.Module.load_state_dict = note_load  # type: ignore[method-assign,assignment]
    nn.Module.__init__ = note_making  # type: ignore[method-assign,assignment]
    try:
        yield
    finally:
        if nn.Module.__setstate__ is note_copy:  # else other code has replaced it since
            nn.Module.__setstate__ = copied  # type: ignore[method-assign]
        if vars(nn.Module)["__init__"] is note_making:
            nn.Module.__init__ = made  # type: ignore[method-assign]
        if vars(nn.Module)["load_state_dict"] is note_load:
            nn.Module.load_state_dict = loaded  # type: ignore[method-assign]


class _NotedLoading:
    """Records whose `load_state_dict` is looked up to be called.

    A function in its place would be a frame between the script and what the call registers.
    """

    def __init__(self, original: Callable[..., Any], loaded: WeakSet[nn.Module]) -> None:
        self._original, self._loaded = original, loaded

    def __get__(self, module: nn.Module | None, kind: type | None = None) -> Callable[..., Any]:
        if module is None:
            return self._original
        self._loaded.add(module)
        return MethodType(self._original, module)


class _NotedMaking:
    """Records the lines that make modules, as their `__init__` is looked up to be called."""

    def __init__(self, original: Callable[..., None], watch: "_Watch") -> None:
        self._original, self._watch = original, watch

    def __get__(self, module: nn.Module | None, kind: type | None = None) -> Callable[..., None]:
        if module is None:
            return self._original
        if not is_traced():
            self._watch.note_making(module, sys._getframe(1))
        return MethodType(self._original, module)


class _Watch:
    """Records the calls of torch's registration hooks."""

    def __init__(self) -> None:
        self._caller = Caller()
        self._noted = 0
        self._made: dict[int, tuple[ref[nn.Module], Line]] = {}
        """By `id` of a module: the line that made it. A module may not be hashable yet."""
        self.found = Definitions()

    @untraced
    def note_module(self, parent: nn.Module, name: str, module: nn.Module | None) -> None:
        line = None if module is None else self._line()
        if module is None or line is None:
            return
        if module not in self.found.modules:
            self.found.modules[module] = self._maker(module, line)
            caller = self._caller_of(line, sys._getframe(2))
            if caller is not None:
                self.found.callers[module] = caller
        replaced = parent._modules.get(name)
        if replaced is not None and replaced is not module:
            self.found.replacements[module] = line
            for inner, parameter in members.named_parameters(replaced):
                position = Replacement(ref(parent), f"{name}.{inner}", line)
                self.found.replaced[parameter] = position

    @unfollowed
    def note_making(self, module: nn.Module, frame: FrameType | None) -> None:
        # A class of the user's calls this in its `__init__`: the line is further out.
        while frame and frame.f_code.co_name == "__init__" and _is_self(frame, module):
            frame = frame.f_back
        line = self._caller.line(frame)
        if line is not None and len(self._made) < _MOST_MADE:
            self._made[id(module)] = ref(module), line

    def _caller_of(self, line: Line, frame: FrameType | None) -> Line | None:
        """Return the user's line that called the function of a line, which is on the stack.

        Of an installed package's, it is the first one outside such packages.
        """
        while frame is not None and frame.f_code is not line.code:
            frame = frame.f_back
        while frame is not None:
            frame = frame.f_back
            caller = self._caller.line(frame)
            if caller is None or not any(part in caller.code.co_filename for part in INSTALLED):
                return caller
        return None

    def _maker(self, module: nn.Module, line: Line) -> Line:
        """Return the line that made a module without weights, or the one that registers it.

        Activations are often made by a helper or in a list, and put into a container later.
        """
        known = self._made.get(id(module))
        if known is None or known[0]() is not module:
            return line
        return line if module._parameters or module._modules else known[1]

    @untraced
    def note_parameter(self, module: nn.Module, name: str, parameter: Tensor | None) -> None:
        if parameter is None:
            return
        if parameter not in self.found.parameters:
            line, order, is_late = self._line(), self._next(), _is_in_forward(sys._getframe(1))
            made = Registration(ref(module), name, line, order, is_late)
            self.found.parameters[parameter] = made
        replaced = module._parameters.get(name)
        if replaced is not None and replaced is not parameter:
            self.found.replaced[replaced] = Replacement(ref(module), name, self._line())

    @untraced
    def note_copy(self, module: nn.Module) -> None:
        """Record a module that `copy.deepcopy` or `torch.load` made: no hook tells of it."""
        line = self._caller.line(sys._getframe(2))
        if line is None:
            return
        self.found.modules.setdefault(module, line)
        for name, parameter in module._parameters.items():
            if parameter is not None and parameter not in self.found.parameters:
                made = Registration(ref(module), name, line, self._next())
                self.found.parameters[parameter] = made

    @unfollowed
    def note_optimizer(self, optimizer: torch.optim.Optimizer) -> None:
        frame: FrameType | None = sys._getframe(2)
        # If a user's class calls this, the line that made the optimizer is further out.
        while frame and frame.f_code.co_name == "__init__" and _is_self(frame, optimizer):
            frame = frame.f_back
        line, given = self._caller.line(frame), line_that_chooses(frame)
        made = Construction(line, self._next(), given if given != line else None)
        self.found.optimizers[optimizer] = made

    def _next(self) -> int:
        self._noted += 1
        return self._noted

    def _line(self) -> Line | None:
        return self._caller.line(sys._getframe(2))


def _is_in_forward(frame: FrameType | None) -> bool:
    """Return whether a module's call is among the callers of a frame."""
    while frame is not None:
        if frame.f_code is _CALL:
            return True
        frame = frame.f_back
    return False


def _is_self(frame: FrameType, made: object) -> bool:
    names = frame.f_code.co_varnames[:1]
    return any(frame.f_locals.get(name) is made for name in names)
