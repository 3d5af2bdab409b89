"""Finds `requires_grad` that was set on modules, on which it means nothing."""

import ast
import sys
from collections.abc import Iterator
from types import FunctionType

from torch import nn

from gradscope.capture.source.lines import Line
from gradscope.capture.source.statements import code_at, tree_of
from gradscope.capture.training.event_log import Number
from gradscope.capture.training.locations import Location, is_installed
from gradscope.capture.training.state import TrainingState
from gradscope.recording.events import ModuleFlagEvent, named
from gradscope.target import members

_NAME = "requires_grad"


class ModuleFlags:
    """Looks again and again: a module may get the attribute at any time, as by a callback.

    The walk over all modules of a model takes as long as a small step, so it is made ever more
    rarely, and once more at the end.
    """

    def __init__(self, training: TrainingState) -> None:
        self._training = training
        self._found: dict[tuple[str, bool], tuple[Location, dict[str, Number]]] = {}
        """By model and value, as of the last look."""
        self._calls = 0

    def look(self) -> None:
        """Look at the modules of all models at the first, second, fourth … call."""
        self._calls += 1
        if not self._calls & (self._calls - 1):
            self._look_at_all()

    def _look_at_all(self) -> None:
        """Look at the modules of all models: a model that is gone keeps its last state."""
        for name, model in self._training.models.roots():
            flagged = [one for one in members.modules(model) if _NAME in vars(one)]
            for value in (False, True):
                self._look(name, model, flagged, value=value)

    def _look(self, name: str, model: nn.Module, flagged: list[nn.Module], *, value: bool) -> None:
        found = [one for one in flagged if _is_contradicted(one, value=value)]
        if not found:
            self._found.pop((name, value), None)
            return
        # At the end, the main module may be another one again: the line of before is kept.
        line = next(_lines(model, value=value), None)
        if line is not None:
            inner = {id(p): p for one in found for p in members.parameters(one)}
            numbers = named(
                ModuleFlagEvent,
                value=float(value),
                modules=float(len(found)),
                parameters=float(sum(p.requires_grad != value for p in inner.values())),
            )
            self._found[name, value] = Location(line, line, None, 0), numbers

    def finish(self) -> None:
        """Record the values that the parameters of their modules contradicted to the last."""
        self._look_at_all()
        for (name, _), (location, numbers) in self._found.items():
            self._training.event_log.note("module-flag", location, numbers, subject=name)


def _is_contradicted(module: nn.Module, *, value: bool) -> bool:
    # A bool: a property of the class's own is no entry, and a number is a setting.
    if vars(module)[_NAME] is not value or _reads(type(module)):
        return False
    return any(one.requires_grad is not value for one in members.parameters(module))


def _reads(kind: type[nn.Module]) -> bool:
    """Return whether a class reads such an attribute, which may then be a setting of its own."""
    return any(
        _NAME in one.__code__.co_names
        for base in kind.__mro__
        if not base.__module__.startswith("torch.")
        for one in vars(base).values()
        if isinstance(one, FunctionType)
    )


def _lines(model: nn.Module, *, value: bool) -> Iterator[Line]:
    """Yield the lines of the script, and of the model's own file, that set such an attribute."""
    names = dict.fromkeys(("__main__", type(model).__module__))
    files = (getattr(sys.modules.get(name), "__file__", None) for name in names)
    for file in dict.fromkeys(one for one in files if one and not is_installed(one)):
        for node in ast.walk(tree_of(file)):
            if isinstance(node, ast.Assign) and any(map(_is_flag, node.targets)):
                code = code_at(file, node.lineno)
                given = node.value.value if isinstance(node.value, ast.Constant) else value
                if code is not None and given is value:
                    yield Line(code, node.lineno)


def _is_flag(target: ast.expr) -> bool:
    return isinstance(target, ast.Attribute) and target.attr == _NAME
