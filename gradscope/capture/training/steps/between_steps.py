"""Watches what happens between steps: hooks, replaced weights, and flags of modules."""

import ast
import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import CodeType, FrameType, FunctionType

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from gradscope.capture.compiler import is_traced
from gradscope.capture.reading import is_plain_float
from gradscope.capture.source.lines import Line
from gradscope.capture.source.statements import code_at, tree_of
from gradscope.capture.training.event_log import Number
from gradscope.capture.training.locations import NOWHERE, Location, is_installed
from gradscope.capture.training.state import TrainingState
from gradscope.capture.training.steps.replaced_weights import ReplacedWeights
from gradscope.recording.events import (
    GradientHooksEvent,
    ModuleFlagEvent,
    OneSignedHookEvent,
    named,
)
from gradscope.target import members

_EVERY = 10
"""Steps between two counts of hooks: each takes a microsecond per fifteen parameters."""
_NAME = "requires_grad"


@dataclass(slots=True)
class _Growth:
    """How often a hook is registered on one parameter."""

    first: int
    last: int
    times: int = 0
    """Number of counts that found more than the one before."""
    parameters: int = 1
    """Number of parameters that have it as often at the last count."""


@dataclass(slots=True)
class _Signs:
    """Signs of the gradients of all parameters with a hook, over all counts."""

    counts: int = 0
    parameters: int = 0
    elements: int = 0
    zeros: int = 0
    negative: bool = False
    """Whether there was a negative element."""
    positive: bool = False

    def add(self, gradient: Tensor) -> None:
        low, high = map(float, torch.aminmax(gradient))
        # NaN counts as both signs: it says nothing about the hook.
        self.negative |= low < 0 or low != low
        self.positive |= high > 0 or high != high
        self.elements += gradient.numel()
        self.zeros += gradient.numel() - int(torch.count_nonzero(gradient))


class GradientHooks:
    """Counts the hooks of the same code on the parameters of the optimizers, and reads signs."""

    def __init__(self, training: TrainingState) -> None:
        self._training = training
        self._growths: dict[CodeType, _Growth] = {}
        self._signs: dict[CodeType, _Signs] = {}

    def count(self, optimizer: Optimizer) -> None:
        """Count the hooks of an optimizer's parameters."""
        found: dict[CodeType, list[int]] = {}
        gradients: dict[CodeType, list[Tensor]] = {}
        for group in optimizer.param_groups:
            for parameter in group["params"]:
                # Nearly no parameter has hooks, and a counter takes longer than to find that out.
                if hooks := parameter._backward_hooks:
                    for code, number in Counter(_codes(hooks)).items():
                        found.setdefault(code, []).append(number)
                        if (gradient := parameter.grad) is not None and is_plain_float(gradient):
                            gradients.setdefault(code, []).append(gradient)
        for code, numbers in found.items():
            most = max(numbers)
            growth = self._growths.setdefault(code, _Growth(most, most))
            growth.times += most > growth.last
            growth.last, growth.parameters = most, numbers.count(most)
        for code, ones in gradients.items():
            self._add_signs(self._signs.setdefault(code, _Signs()), ones)

    @staticmethod
    def _add_signs(signs: _Signs, gradients: list[Tensor]) -> None:
        if signs.negative and signs.positive:
            return  # as of nearly all hooks: nothing is left to find out
        signs.counts += 1
        signs.parameters = len(gradients)
        with torch.no_grad():
            for one in gradients:
                signs.add(one)

    def finish(self) -> None:
        """Record the hooks that became more and more, and that change the gradient."""
        for code, growth in self._growths.items():
            # A hook that only looks may be registered as often as one likes.
            if growth.times and _returns(code):
                numbers = named(
                    GradientHooksEvent,
                    before=float(growth.first),
                    hooks=float(growth.last),
                    times=float(growth.times),
                    parameters=float(growth.parameters),
                )
                self._training.event_log.note("gradient-hooks", _location(code), numbers)
        for code, signs in self._signs.items():
            if signs.negative != signs.positive:
                numbers = named(
                    OneSignedHookEvent,
                    counts=float(signs.counts),
                    parameters=float(signs.parameters),
                    elements=float(signs.elements),
                    zeros=float(signs.zeros),
                    positive=float(signs.positive),
                )
                line = Line(code, code.co_firstlineno)
                self._training.event_log.note(
                    "one-signed-hook", Location(line, line, None, 0), numbers
                )


def _codes(hooks: Mapping[int, object]) -> Iterator[CodeType]:
    for hook in hooks.values():
        code = getattr(hook, "__code__", None)
        if isinstance(code, CodeType):
            yield code


def _functions(code: CodeType) -> Iterator[ast.FunctionDef | ast.Lambda]:
    for one in ast.walk(tree_of(code.co_filename)):
        if isinstance(one, ast.FunctionDef | ast.Lambda) and one.lineno == code.co_firstlineno:
            yield one


def _returns(code: CodeType) -> bool:
    """Return whether a hook returns a gradient; others only look at it."""
    for function in _functions(code):
        if isinstance(function, ast.Lambda):
            return isinstance(function.body, ast.BinOp)
        if any(isinstance(one, ast.Return) and one.value for one in ast.walk(function)):
            return True
    return False


def _location(code: CodeType) -> Location:
    """Return the line that registers a hook, or the only call of a function that does just that."""
    file, line = code.co_filename, Line(code, code.co_firstlineno)
    around = code_at(file, code.co_firstlineno)
    if isinstance(around, CodeType):
        line = Line(around, code.co_firstlineno)
    for one in ast.walk(tree_of(file)):
        if not isinstance(one, ast.FunctionDef):
            continue
        if not one.lineno < code.co_firstlineno <= (one.end_lineno or 0):
            continue
        calls = _calls(file, one.name)
        outer = code_at(file, calls[0]) if len(calls) == 1 and _only_registers(one) else None
        if outer is not None:
            line = Line(outer, calls[0])
    return Location(line, line, None, 0) if line.number else NOWHERE


def _only_registers(function: ast.FunctionDef) -> bool:
    text = ast.unparse(function)
    return "register_hook" in text and not any(word in text for word in (".backward(", ".step("))


def _calls(file: str, name: str) -> list[int]:
    called = (one for one in ast.walk(tree_of(file)) if isinstance(one, ast.Call))
    return [one.lineno for one in called if ast.unparse(one.func).rpartition(".")[2] == name]


class BetweenSteps:
    """Watches weights that are replaced, and hooks that are registered again.

    Its calls run in every step, so each compares a few bytes.
    """

    def __init__(self, training: TrainingState) -> None:
        self._guard, self._targets = training.guard, training.still_targets
        self.weights, self._hooks = ReplacedWeights(training), GradientHooks(training)
        self._flags = ModuleFlags(training)
        self._until = 1
        """Number of steps until hooks are counted."""

    def before_step(self, optimizer: Optimizer, frame: FrameType) -> None:
        """Look at an optimizer's parameters before its step."""
        self._until -= 1
        self._targets.steps += 1
        if not self._until:
            self._until = _EVERY
            if not is_traced():
                self._guard.run(self._look_closer, optimizer)
        self.weights.before_step(optimizer, frame)

    def _look_closer(self, optimizer: Optimizer) -> None:
        self._hooks.count(optimizer)
        self.weights.settle()
        self._targets.look()
        self._flags.look()

    def finish(self) -> None:
        """Record what was seen."""
        self.weights.finish()
        self._targets.finish()
        self._hooks.finish()
        self._flags.finish()


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
