"""Measures buffers and other constants that ranks may draw at random, each its own."""

import ast
import functools
import re
import sys
from collections.abc import Iterator, Mapping
from itertools import islice
from weakref import ref

from torch import Tensor, nn

from gradscope.capture.ranks.observations import RankLog
from gradscope.capture.ranks.placement import is_fsdp1, is_fsdp2
from gradscope.capture.ranks.reducers import Reducers
from gradscope.capture.source.lines import Line
from gradscope.capture.source.statements import code_at, nodes_within, tree_of
from gradscope.capture.statistics import norms
from gradscope.capture.training.state import TrainingState
from gradscope.frozen import dataclass
from gradscope.target import members

_DRAWING = re.compile(
    r"^(rand\w*|(log_)?normal_?|(standard_)?normal|uniform_?|bernoulli_?|exponential_|cauchy_"
    r"|geometric_|multinomial|(kaiming|xavier)_\w+|orthogonal_|trunc_normal_|sparse_)$"
)
"""Functions and methods of torch and NumPy that draw random numbers."""


_MOST = 64
"""Maximum number of buffers of a model."""

_MOST_MODULES = 1_024

_FEWEST = 4
"""Minimum number of elements of a random constant."""


def drawn_at(kind: type, name: str) -> Line | None:
    """Return the line at which a class sets an attribute or a buffer to random numbers.

    None if the forward does not read it: a module may hold data of its rank.
    """
    found: Line | None = None
    is_read = False
    for base in kind.__mro__:
        module = base.__module__
        if module == "torch" or module.startswith("torch."):
            continue
        file = getattr(sys.modules.get(module), "__file__", None)
        known = _classes(file).get(base.__name__) if file is not None else None
        if file is None or known is None:
            continue
        # A class may draw what the forward of its base reads.
        is_read = is_read or name in known.read
        number = known.drawn.get(name)
        code = None if number is None or found is not None else code_at(file, number)
        if code is not None and number is not None:
            found = Line(code, number)
    return found if is_read else None


@dataclass(frozen=True, slots=True)
class _Class:
    """What the source of a class does with its attributes."""

    drawn: Mapping[str, int]
    """Lines that set attributes to random numbers, by attribute."""
    read: frozenset[str]
    """Attributes that `forward`, or a method that it calls, reads."""


@functools.lru_cache(maxsize=16)
def _classes(file: str) -> dict[str, _Class]:
    """Return the classes of a file, by name."""
    return {
        kind.name: _class(kind)
        for kind in ast.walk(tree_of(file))
        if isinstance(kind, ast.ClassDef)
    }


def _class(kind: ast.ClassDef) -> _Class:
    methods = {one.name: one for one in kind.body if isinstance(one, ast.FunctionDef)}
    drawn = {name: line for one in methods.values() for name, line in _of_method(one)}
    read: set[str] = set()
    waiting = ["forward"]
    while waiting:
        # Taken out, because methods may call each other in a circle.
        method = methods.pop(waiting.pop(), None)
        if method is not None:
            names = set(_own_attributes(method))
            read |= names
            waiting += sorted(names)
    return _Class(drawn, frozenset(read))


def _own_attributes(method: ast.FunctionDef) -> Iterator[str]:
    """Yield the attributes of `self` that a method reads."""
    for node in ast.walk(method):
        match node:
            case ast.Attribute(value=ast.Name(id="self"), attr=name, ctx=ast.Load()):
                yield name


def _of_method(method: ast.FunctionDef) -> Iterator[tuple[str, int]]:
    nodes = list(nodes_within(method))
    random: set[str] = set()
    for node in nodes * 2:  # once more for the variables made of others
        match node:
            case ast.Assign(targets=[ast.Name(id=name)], value=value) if _is_random(value, random):
                random.add(name)
            case ast.Expr(value=ast.Call(args=[ast.Name(id=name), *_]) as call) if _draws_by(call):
                random.add(name)  # nn.init.orthogonal_(name)
    for node in nodes:
        match node:
            case ast.Assign(targets=[ast.Attribute(value=ast.Name(id="self"), attr=name)]):
                value = node.value
            case ast.Call(
                func=ast.Attribute(attr="register_buffer"),
                args=[ast.Constant(value=str(name)), value, *_],
            ):
                pass
            case _:
                continue
        if _is_random(value, random):
            yield name, node.lineno


def _is_random(value: ast.expr, random: set[str]) -> bool:
    """Return whether a value holds random numbers, or is made of some."""
    return any(
        _draws_by(one)
        if isinstance(one, ast.Call)
        else isinstance(one, ast.Name) and one.id in random
        for one in ast.walk(value)
    )


def _draws_by(call: ast.Call) -> bool:
    match call.func:
        case ast.Attribute(attr=name) | ast.Name(id=name):
            return _DRAWING.match(name) is not None
    return False


class Buffers:
    """Measures the buffers of FSDP models, and of DDP models that do not broadcast them.

    In a script that reduces gradients itself, those of all models. Constants that modules draw at
    random are measured in these models and in all DDP models, as far as nothing broadcasts them.

    Args:
        training: State of the training.
        log: Receives the norms.
        reducers: The models that DDP wraps.
    """

    def __init__(self, training: TrainingState, log: RankLog, reducers: Reducers) -> None:
        self._training, self._log, self._reducers = training, log, reducers
        self._drawn: dict[str, tuple[ref[nn.Module], str, int | None, float]] | None = None
        """By name of a constant: its module, attribute, line and first norm; None at first."""

    def measure(self, *, is_by_hand: bool) -> None:
        """Record the norms of the buffers.

        Args:
            is_by_hand: Whether the script itself reduced gradients of this step.
        """
        definitions = self._training.models.records.definitions
        models = list(self._models(is_by_hand=is_by_hand))
        self._measure_drawn(models)
        for model in models:
            found = list(islice(_floating(model), _MOST))
            values = norms([tensor for _, _, tensor in found])
            for (module, name, _), norm in zip(found, values, strict=True):
                if norm is not None:
                    made = self._log.line(definitions.modules.get(module))
                    self._log.note("buffer", made, name, {"norm": norm})

    def _measure_drawn(self, models: list[nn.Module]) -> None:
        """Record the norms of constants that modules drew at random."""
        # Found once: the search reads the source of every class.
        if self._drawn is None:
            self._drawn = dict(self._found_drawn(models))
        for name, (owner, attribute, line, first) in self._drawn.items():
            module = owner()
            norm = None if module is None else _norm(_own(module).get(attribute))
            if norm is not None:
                self._log.note("drawn", line, name, {"norm": norm, "first": first})

    def _found_drawn(
        self, models: list[nn.Module]
    ) -> Iterator[tuple[str, tuple[ref[nn.Module], str, int | None, float]]]:
        broadcast = [
            one.module
            for known in self._reducers.known
            if (one := known.model()) is not None and one.broadcast_buffers
        ]
        for model in (*models, *broadcast):
            is_broadcast = any(model is one for one in broadcast)
            for path, module in islice(members.named_modules(model), _MOST_MODULES):
                # DDP broadcasts buffers before each forward, and attributes never.
                plain = vars(module) if is_broadcast else _own(module)
                for attribute, one in list(plain.items()):
                    norm = _norm(one)
                    line = None if norm is None else drawn_at(type(module), attribute)
                    if norm is not None and line is not None:
                        name = f"{path}.{attribute}" if path else attribute
                        yield name, (ref(module), attribute, self._log.line(line), norm)

    def _models(self, *, is_by_hand: bool) -> Iterator[nn.Module]:
        for one in self._reducers.known:
            model = one.model()
            if model is not None and not model.broadcast_buffers:
                yield model.module
        seen: set[int] = set()
        for module in self._training.models.modules:  # a model before its parts
            is_sharded = is_fsdp1(module) or is_fsdp2(module)
            is_bare = is_by_hand and not self._reducers.known
            if id(module) not in seen and (is_sharded or is_bare):
                seen.update(map(id, members.modules(module)))
                yield module


def _floating(model: nn.Module) -> Iterator[tuple[nn.Module, str, Tensor]]:
    for path, module in members.named_modules(model):
        for name, buffer in members.own_buffers(module):
            if buffer.is_floating_point() and buffer.numel():
                yield module, f"{path}.{name}" if path else name, buffer


def _own(module: nn.Module) -> dict[str, object]:
    """Return the attributes and buffers of a module."""
    return {**vars(module), **dict(members.own_buffers(module))}


def _norm(value: object) -> float | None:
    """Return the norm of a constant that is none of the parameters; None for other values."""
    if type(value) is not Tensor or not value.is_floating_point() or value.requires_grad:
        return None
    return norms([value])[0] if value.numel() >= _FEWEST else None
