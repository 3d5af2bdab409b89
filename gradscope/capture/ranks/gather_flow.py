"""Follows what ranks gather: its result to the loss, and the order of the gathering modules."""

import ast
import functools
import zlib
from collections.abc import Iterator
from types import FrameType
from typing import Any

import torch.distributed as dist
from torch import Tensor, nn

from gradscope.capture.ranks.observations import RankLog
from gradscope.capture.ranks.placement import groups_of, is_fsdp2
from gradscope.capture.source.statements import nodes_within, tree_of
from gradscope.capture.training.locations import Location, stem
from gradscope.capture.training.state import TrainingState
from gradscope.frozen import dataclass

_ROUNDS = 8
"""Maximum number of rounds in which names are followed."""

_INERT = frozenset({"detach", "item", "no_grad", "len", "print", "argmax", "float", "int"})
"""Calls whose result carries no value of the gather into a loss."""


_MOST = 256
"""Maximum number of modules in a pass."""


@dataclass(frozen=True, slots=True)
class Reach:
    """How far a gathered value gets."""

    loss: bool
    """Whether it enters what backward starts from."""
    own: bool
    """Whether the script puts this rank's own tensor back into the result."""


def gather_reaches_loss(location: Location, *, returns: bool = False) -> Reach:
    """Return how far the result of a gather at a location gets.

    Args:
        location: The location.
        returns: Whether the gather returns its result, and does not fill a tensor that it is given.
    """
    line, call = location.user, location.users_call()
    if line is None:
        return Reach(loss=False, own=False)
    if returns:
        file = line.code.co_filename
        return _reach(file, line.number, _assigned(tree_of(file), line.number))
    out = call.args[0] if call is not None and call.args else None
    if call is not None and out is None:
        names = ("tensor_list", "output_tensor", "output")
        out = next((k.value for k in call.keywords if k.arg in names), None)
    start = None if out is None else stem(out)
    return _reach(line.code.co_filename, line.number, () if start is None else (start,))


def _assigned(tree: ast.Module, line: int) -> tuple[str, ...]:
    """Return the variables that the statement of a line assigns."""
    found = [
        one
        for one in ast.walk(tree)
        if isinstance(one, ast.Assign) and one.lineno <= line <= (one.end_lineno or line)
    ]
    if not found:
        return ()
    (target, *_) = max(found, key=lambda one: one.lineno).targets
    parts = target.elts if isinstance(target, ast.Tuple) else [target]
    return tuple(name for one in parts if (name := stem(one)) is not None)


@functools.lru_cache(maxsize=32)
def _reach(file: str, line: int, starts: tuple[str, ...]) -> Reach:
    if not starts:
        return Reach(loss=False, own=False)
    tree = tree_of(file)
    functions = [one for one in ast.walk(tree) if isinstance(one, ast.FunctionDef)]
    scopes: list[ast.AST] = [tree, *functions]
    around = [one for one in functions if one.lineno <= line <= (one.end_lineno or line)]
    first: ast.AST = max(around, key=lambda one: one.lineno, default=tree)
    flow = _Flow(scopes)
    flow.names[first] = set(starts)
    flow.follow()
    return Reach(
        loss=flow.reaches_backward(), own=any(_is_put_back(scopes, first, one) for one in starts)
    )


def _is_put_back(scopes: list[ast.AST], first: ast.AST, start: str) -> bool:
    """Return whether the script joins a result with this rank's own tensor.

    A function may return the result: then all its callers have to do so.
    """
    if _joins(first, start):
        return True
    if not isinstance(first, ast.FunctionDef) or not _returns(first, start):
        return False
    received = [
        (scope, name)
        for scope in scopes
        for node in nodes_within(scope)
        if isinstance(node, ast.Assign)
        for name in _names_given(node, first.name)
    ]
    calls = [node for scope in scopes for node in nodes_within(scope) if _is_call(node, first.name)]
    # A call whose result gets no name might use it without the own tensor.
    return 0 < len(calls) == len(received) and all(_joins(*one) for one in received)


def _joins(scope: ast.AST, name: str) -> bool:
    return any(_puts_back(node, name) for node in nodes_within(scope))


def _returns(function: ast.FunctionDef, name: str) -> bool:
    """Return whether a function returns what a variable holds."""
    return any(
        isinstance(node, ast.Return)
        and node.value is not None
        and any(_is_name(one, name) for one in ast.walk(node.value))
        for node in nodes_within(function)
    )


def _names_given(node: ast.Assign, function: str) -> Iterator[str]:
    """Yield the variables to which a statement assigns results of a function."""
    match node:
        case ast.Assign(targets=[ast.Tuple(elts=targets)], value=ast.Tuple(elts=values)):
            pairs = list(zip(targets, values, strict=False))
        case ast.Assign(targets=[target], value=value):
            pairs = [(target, value)]
        case _:
            return
    for target, value in pairs:
        if _is_call(value, function) and (name := stem(target)) is not None:
            yield name


def _is_call(node: ast.AST, function: str) -> bool:
    return isinstance(node, ast.Call) and (stem(node.func) or "").rpartition(".")[2] == function


def _puts_back(node: ast.AST, start: str) -> bool:
    """Return whether a statement joins a gathered value with another tensor."""
    match node:
        case ast.Assign(targets=[ast.Subscript(value=owner), *_]):
            return stem(owner) == start
        case ast.Call(
            func=ast.Attribute(attr="cat" | "stack" | "concat"),
            args=[ast.List(elts=parts) | ast.Tuple(elts=parts), *_],
        ):
            found = [any(_is_name(one, start) for one in ast.walk(part)) for part in parts]
            return any(found) and not all(found)
    return False


def _is_name(node: ast.AST, name: str) -> bool:
    return isinstance(node, ast.Name | ast.Attribute) and stem(node) == name


def detaches(location: Location, frame: FrameType) -> bool:
    """Return whether the call at a location detaches a variable that has a history.

    Args:
        location: The location.
        frame: Frame that makes the call.
    """
    call = location.users_call()
    for node in () if call is None else ast.walk(call):
        match node:
            case ast.Attribute(value=ast.Name(id=name), attr="detach" | "data"):
                one = frame.f_locals.get(name)
                if isinstance(one, Tensor) and one.requires_grad:
                    return True
    return False


class _Flow:
    """The names in each scope that hold a value."""

    def __init__(self, scopes: list[ast.AST]) -> None:
        self._scopes = scopes
        self.names: dict[ast.AST, set[str]] = {scope: set() for scope in scopes}
        self._functions = set[str]()
        """Functions that return the value."""

    def follow(self) -> None:
        """Follow the value through assignments and calls."""
        for _ in range(_ROUNDS):
            before = (len(self._functions), sum(map(len, self.names.values())))
            for scope in self._scopes:
                for node in nodes_within(scope):
                    self._follow(scope, node)
            if before == (len(self._functions), sum(map(len, self.names.values()))):
                return

    def _follow(self, scope: ast.AST, node: ast.AST) -> None:
        match node:
            case ast.Assign(targets=targets, value=value) if self._holds(scope, value):
                for target in targets:
                    parts = target.elts if isinstance(target, ast.Tuple) else [target]
                    self.names[scope] |= {name for one in parts if (name := stem(one))}
            case ast.AugAssign(target=target, value=value) if self._holds(scope, value):
                self.names[scope] |= {name for name in (stem(target),) if name}
            case ast.Return(value=value) if value is not None and self._holds(scope, value):
                if isinstance(scope, ast.FunctionDef):
                    self._functions.add(scope.name)

    def _holds(self, scope: ast.AST, value: ast.AST) -> bool:
        names = self.names[scope]
        match value:
            case ast.Call(func=function):
                called = (stem(function) or "").rpartition(".")[2]
                if called in _INERT:
                    return False
                # A call of a module runs its `forward`, whatever the variable is called.
                if called in self._functions or (
                    "forward" in self._functions and _may_be_module(function)
                ):
                    return True
            case ast.Name() | ast.Attribute() if stem(value) in names:
                return True
        return any(self._holds(scope, one) for one in ast.iter_child_nodes(value))

    def reaches_backward(self) -> bool:
        """Return whether a backward starts from the value."""
        return any(
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Attribute)
            and node.func.attr in ("backward", "manual_backward")
            and self._holds_any(scope, [node.func.value, *node.args])
            for scope in self._scopes
            for node in nodes_within(scope)
            # Trainers of Lightning and transformers run the backward of what these return.
        ) or bool(self._functions & {"training_step", "compute_loss"})

    def _holds_any(self, scope: ast.AST, values: list[ast.expr]) -> bool:
        return any(self._holds(scope, one) for one in values)


def _may_be_module(function: ast.expr) -> bool:
    """Return whether a call may be one of a module, and not of a function of torch."""
    name = stem(function) or ""
    return bool(name) and not name.startswith(("torch", "F.", "dist.", "nn.", "math."))


class GatherOrder:
    """Notes each module that is sharded over all ranks at its first call since the last backward.

    Args:
        training: State of the training.
        log: Receives the lines of the calls.
    """

    def __init__(self, training: TrainingState, log: RankLog) -> None:
        self._training, self._log = training, log
        self._names: dict[str, int] = {}
        """Modules called since the last backward, with a code for each name."""

    def see(self, module: nn.Module, frame: FrameType) -> None:
        """Note a call of a module with gradients enabled, at a frame."""
        name = _name_of(module) if is_fsdp2(module) else None
        if name is None or name in self._names or len(self._names) >= _MOST:
            return
        code = self._names[name] = zlib.crc32(name.encode())
        site = self._log.site(self._training.locations.of(frame))
        self._log.note("sharded-call", site, name, {"code": float(code)})

    def take(self) -> tuple[int, ...]:
        """Return the codes of a pass, and start the next one."""
        codes = tuple(self._names.values())
        self._names = {}
        return codes


def _name_of(module: Any) -> str | None:  # noqa: ANN401 - a class that may not be loaded
    """Return the name that FSDP2 knows a module by; None if not all ranks share its weights.

    The outermost module, whose weights all ranks gather first, has none.
    """
    for group in groups_of(module):
        name = getattr(group, "_module_fqn", None)
        size = getattr(getattr(group, "mesh_info", None), "shard_mesh_size", None)
        if name and size == dist.get_world_size():
            return str(name)
    return None
