"""Detects averages, states and gradients that are kept without a copy."""

import ast
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from types import FrameType
from typing import Any

import torch
from torch import Tensor, nn

from gradscope.capture.compiler import is_traced
from gradscope.capture.source.lines import Line
from gradscope.capture.source.statements import code_at, tree_of
from gradscope.capture.step.self_averages import SelfAverage
from gradscope.capture.tensor_references import WeakTensor
from gradscope.capture.training.event_log import EventLog
from gradscope.capture.training.guard import Function, Guard, Patches
from gradscope.capture.training.locations import Location, Locations
from gradscope.recording.events import KeptGradientsEvent, SharedWeightsEvent, named
from gradscope.target import members

_COPYING = ("clone", "copy", "empty", "load(", "ones", "rand", "zeros")
"""Words of an expression that makes tensors of its own."""


_MOST_STATES = 64
"""Number of states that are known again, the last ones."""


def keeping_line(line: Line) -> tuple[Line | None, str]:
    """Return the line that assigned what a line uses, and its name as written.

    Args:
        line: A line that averages kept tensors in place, or restores them.

    Returns:
        None if it is not the only assignment without a copy.
    """
    file = line.code.co_filename
    statement = _statement(file, line.number)
    if statement is None:
        return None, ""
    name = _kept(statement)
    # A loop's variable is no place to keep tensors: what it goes over is.
    if isinstance(name, ast.Name):
        name = _iterated(file, line.number, name.id) or name
    if name is None:
        return None, ""
    text = ast.unparse(name)
    found = sorted({one.lineno for one in _assignments(file, text)})
    code = code_at(file, found[0]) if len(found) == 1 else None
    return (None if code is None else Line(code, found[0])), text


def aliasing_line(line: Line) -> tuple[Line | None, str]:
    """Return the line that made one module the same as another, and its name as written.

    Args:
        line: A line that copies the state of one module into another.

    Returns:
        None and "" if the line does not name two modules, as one that restores a module's own
        state; the line itself if no other one assigns one of the two to the other.
    """
    match _statement(line.code.co_filename, line.number):
        case ast.Expr(
            value=ast.Call(
                func=ast.Attribute(value=copy, attr="load_state_dict"),
                args=[ast.Call(func=ast.Attribute(value=original, attr="state_dict")), *_],
            )
        ) if ast.unparse(copy) != ast.unparse(original):
            pass
        case _:
            return None, ""
    name, file = ast.unparse(copy), line.code.co_filename
    names = {name, ast.unparse(original)}
    found = [
        one.lineno
        for one in ast.walk(tree_of(file))
        if isinstance(one, ast.Assign)
        and any(ast.unparse(target) in names for target in one.targets)
        and not names.isdisjoint(_same_object(one.value))
    ]
    code = code_at(file, found[0]) if len(found) == 1 else None
    return (line if code is None else Line(code, found[0])), name


def _same_object(value: ast.expr) -> Iterator[str]:
    """Yield what an assigned value shares its parameters with: `q` for `q` and for `copy(q)`."""
    yield ast.unparse(value)
    match value:
        case ast.Call(func=ast.Name(id="copy") | ast.Attribute(attr="copy"), args=[given]):
            yield ast.unparse(given)


def collecting_line(line: Line) -> tuple[Line | None, str]:
    """Return the line that collects gradients themselves, if the file of a line has only one.

    Args:
        line: A line that uses such a collection.
    """
    file = line.code.co_filename
    nodes = (one for one in ast.walk(tree_of(file)) if isinstance(one, ast.expr))
    found = sorted({one.lineno for one in nodes if any(map(_is_gradient, _items(one)))})
    code = code_at(file, found[0]) if len(found) == 1 else None
    return (None if code is None else Line(code, found[0])), ""


def _items(node: ast.AST) -> list[ast.expr]:
    """Return what an expression puts into a list or a dict."""
    match node:
        case ast.ListComp(elt=item) | ast.DictComp(value=item):
            return [item]
        case ast.List(elts=items):
            return items
        case ast.Call(func=ast.Attribute(attr="append"), args=[item]):
            return [item]
    return []


def _is_gradient(expression: ast.expr) -> bool:
    return isinstance(expression, ast.Attribute) and expression.attr == "grad"


def _statement(file: str, number: int) -> ast.stmt | None:
    """Return the innermost statement of a line."""
    found = None
    for one in ast.walk(tree_of(file)):
        # `ast.walk` goes breadth first: the last one found is the innermost.
        if isinstance(one, ast.stmt) and one.lineno <= number <= (one.end_lineno or one.lineno):
            found = one
    return found


def _kept(statement: ast.stmt) -> ast.Name | ast.Attribute | None:
    """Return the variable or attribute that a statement writes to, or restores from."""
    match statement:
        case ast.AugAssign(target=target):
            return _base(target)
        case ast.Expr(value=ast.Call(func=ast.Attribute(attr=method), args=[first, *_])) if (
            method == "load_state_dict" or method.startswith("_foreach")
        ):
            return _base(first)
        case ast.Expr(value=ast.Call(func=ast.Attribute(value=owner))):
            return _base(owner)
    return None


def _base(expression: ast.expr) -> ast.Name | ast.Attribute | None:
    """Return the variable or attribute in which an expression begins: `self.s` of `self.s[0]`."""
    match expression:
        case ast.Name():
            return expression
        case ast.Attribute(value=ast.Name(id="self" | "cls")):
            return expression
        case ast.Attribute(value=inner) | ast.Subscript(value=inner) | ast.Starred(value=inner):
            return _base(inner)
        case ast.Call(func=ast.Attribute(value=inner)):
            return _base(inner)
        case ast.Call(args=[first, *_]):
            return _base(first)
    return None


def _iterated(file: str, number: int, variable: str) -> ast.Name | ast.Attribute | None:
    """Return what a loop around a line goes over, if it sets a variable."""
    for loop in ast.walk(tree_of(file)):
        if isinstance(loop, ast.For) and loop.lineno <= number <= (loop.end_lineno or 0):
            match loop.target, loop.iter:
                case ast.Name(id=name), over if name == variable:
                    return _base(over)
                case ast.Tuple(elts=names), ast.Call(func=ast.Name(id="zip"), args=overs):
                    for one, over in zip(names, overs, strict=False):
                        if variable in _names(one):
                            return _base(over)
                case ast.Tuple() as names, over if variable in _names(names):
                    return _base(over)
    return None


def _names(expression: ast.expr) -> set[str]:
    return {one.id for one in ast.walk(expression) if isinstance(one, ast.Name)}


def _assignments(file: str, name: str) -> Iterator[ast.Assign | ast.AnnAssign]:
    """Yield the statements that assign something without a copy to a name, or to its items."""
    for one in ast.walk(tree_of(file)):
        match one:
            case ast.Assign(targets=[target], value=value):
                pass
            case ast.AnnAssign(target=target, value=ast.expr() as value):
                pass
            case _:
                continue
        owner = target.value if isinstance(target, ast.Subscript) else target
        text = ast.unparse(value)
        is_empty = isinstance(value, ast.Constant) or text in ("[]", "{}", "dict()", "list()")
        is_copy = any(word in text for word in _COPYING)
        if ast.unparse(owner) == name and not (is_empty or is_copy):
            yield one


class SharedWeights:
    """Records what a script keeps of its weights without a copy, once per line."""

    def __init__(self, guard: Guard, locations: Locations, event_log: EventLog) -> None:
        self._guard, self._locations, self._event_log = guard, locations, event_log
        self._noted: set[Line | None] = set()
        self._collected = Counter[Line]()
        """By line: number of steps in which it uses collections that were overwritten."""
        self._states: list[tuple[WeakTensor[Tensor], int]] = []
        """First tensors of states, each with the number of steps before the state was taken."""
        self._depth = 0
        self.steps = 0
        """Number of optimizer steps so far."""

    def install(self, patches: Patches) -> None:
        """Start to observe states of modules, and what is restored."""
        patches.wrap(nn.Module, "state_dict", self._wrap_taking)
        # Within `load_state_dict`, which other parts of gradscope replace.
        patches.wrap(nn.Module, "_load_from_state_dict", self._wrap_restoring)

    def averaged(self, averages: Iterable[SelfAverage]) -> None:
        """Record lines that average weights with themselves."""
        for one in averages:
            numbers = named(
                SharedWeightsEvent, parameters=float(len(one.memory)), factor=one.factor
            )
            self._note(one.line, numbers)

    def kept(self, found: Mapping[Line, int]) -> None:
        """Record lines that use collections of gradients which later backward passes wrote to.

        In two steps, as one that is kept for the whole training may be made in the first.
        """
        for line, collections in found.items():
            self._collected[line] += 1
            if self._collected[line] < 2:
                continue
            numbers = named(KeptGradientsEvent, collections=float(collections))
            self._note(line, numbers, "kept-gradients", collecting_line)

    def _note(
        self,
        line: Line | None,
        numbers: dict[str, Any],
        kind: str = "shared-weights",
        search: Callable[[Line], tuple[Line | None, str]] = keeping_line,
    ) -> None:
        if line is None or line in self._noted:
            return
        kept, name = search(line)
        where = kept or line
        is_known = where in self._noted
        self._noted |= {line, where}
        if is_known:
            return
        location = Location(where, where, None, 0)
        self._event_log.note(kind, location, numbers, subject=name)

    def _wrap_taking(self, original: Function) -> Function:
        def state_dict(module: nn.Module, *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401
            if is_traced() or self._depth or not self._guard.active:
                return original(module, *args, **kwargs)
            self._depth += 1  # it calls itself for the modules within
            try:
                state = original(module, *args, **kwargs)
            finally:
                self._depth -= 1
            self._guard.glance(self._take, state)
            return state

        return state_dict

    def _take(self, state: object) -> None:
        first = _first(state)
        if first is not None:
            self._states = [*self._states[-_MOST_STATES:], (WeakTensor(first), self.steps)]

    def _wrap_restoring(self, original: Function) -> Function:
        # Modules that extend it may pass its arguments by their names.
        def load(module: nn.Module, *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401
            if not is_traced() and self._guard.active:
                self._guard.glance(self._restore, module, args, kwargs, sys._getframe(1))
            return original(module, *args, **kwargs)

        return load

    def _restore(
        self,
        module: nn.Module,
        args: tuple[object, ...],
        kwargs: Mapping[str, object],
        frame: FrameType,
    ) -> None:
        """Compare what is about to be restored with what the module has."""
        given = dict(zip(("state_dict", "prefix"), args, strict=False)) | dict(kwargs)
        state = given.get("state_dict")
        if given.get("prefix"):
            return  # a module within the one that is restored
        first = _first(state)
        taken = [steps for known, steps in self._states if first is not None and known() is first]
        if not taken or not isinstance(state, Mapping):
            return
        own = dict(members.named_parameters(module))
        shared = [name for name, one in own.items() if _is_shared(one, state.get(name))]
        if not own or len(shared) < len(own):
            return
        # `state_dict` returns the parameters' own memory: after a step it holds the new weights.
        since = self.steps - taken[-1]
        line = self._locations.of(frame).user
        if since:
            numbers = named(
                SharedWeightsEvent,
                parameters=float(len(shared)),
                restored=1.0,
                steps=float(since),
            )
            self._note(line, numbers)
        elif line is not None and aliasing_line(line)[0] is not None:
            numbers = named(SharedWeightsEvent, parameters=float(len(shared)), same=1.0)
            self._note(line, numbers, search=aliasing_line)


def _first(state: object) -> Tensor | None:
    """Return the first tensor of a state."""
    if not isinstance(state, Mapping):
        return None
    return next((one for one in state.values() if isinstance(one, Tensor)), None)


def _is_shared(parameter: Tensor, kept: object) -> bool:
    if type(kept) is not Tensor and type(kept) is not nn.Parameter:
        return False
    if parameter.is_meta or type(parameter) is not nn.Parameter or parameter.numel() == 0:
        return False
    assert isinstance(kept, Tensor)
    if kept.layout is not torch.strided or parameter.layout is not torch.strided:
        return False
    # The state holds detached tensors, other objects in the same memory.
    return kept.data_ptr() == parameter.data_ptr() and kept.shape == parameter.shape
