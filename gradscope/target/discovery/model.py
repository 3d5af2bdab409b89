"""Finds the model in a file, also from where its source binds and uses names."""

import ast
import inspect
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from types import ModuleType

from torch import nn
from torch.nn.modules.loss import _Loss

from gradscope.errors import GradscopeError, GuessNeededError
from gradscope.frozen import dataclass
from gradscope.target import members
from gradscope.target.discovery.importing import Source
from gradscope.target.discovery.values import (
    build,
    call_help,
    guessed_arguments,
    required_parameters,
)
from gradscope.target.notation import parse_expression
from gradscope.target.user_code import Advice, UserCode


@dataclass(frozen=True, slots=True, kw_only=True)
class Outline:
    """The top level of a file."""

    lines: tuple[tuple[str, int], ...]
    """Names, each with the line of its first binding."""
    uses: tuple[tuple[str, frozenset[str]], ...]
    """For each class and function, the names that it mentions."""

    def line_of(self, name: str) -> int | None:
        """Return the line that binds a name; None if the source does not show it."""
        return next((line for bound, line in self.lines if bound == name), None)

    def reachable(self, name: str) -> frozenset[str]:
        """Return the names that a class or function uses, also through others of the file."""
        uses = dict(self.uses)
        found: set[str] = set()
        waiting = [name]
        while waiting:
            new = uses.get(waiting.pop(), frozenset()) - found
            found |= new
            waiting.extend(new)
        return frozenset(found)


def outline_of(module: ModuleType) -> Outline:
    """Return the outline of a module, empty if it has no source."""
    try:
        tree = ast.parse(inspect.getsource(module))
    except (OSError, TypeError, SyntaxError):
        return Outline(lines=(), uses=())
    lines: dict[str, int] = {}
    uses = []
    for statement in tree.body:
        for name in _bound(statement):
            lines.setdefault(name, statement.lineno)
        if isinstance(statement, ast.ClassDef | ast.FunctionDef):
            uses.append((statement.name, _mentioned(statement)))
    return Outline(lines=tuple(lines.items()), uses=tuple(uses))


def _bound(statement: ast.stmt) -> Iterator[str]:
    if isinstance(statement, ast.ClassDef | ast.FunctionDef):
        yield statement.name
        return
    for node in ast.walk(statement):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id
        elif isinstance(node, ast.alias):
            yield node.asname or node.name.partition(".")[0]


def _mentioned(statement: ast.stmt) -> frozenset[str]:
    return frozenset(node.id for node in ast.walk(statement) if isinstance(node, ast.Name))


_NAMES = ("build_model", "model", "net")

_LOOKED_FOR = "gradscope_setup, build_model, model, net, a single nn.Module"

_LOSS_ENDINGS = ("Loss", "Criterion")


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundModel:
    """A model and notes on the choice."""

    model: nn.Module
    notes: tuple[str, ...] = ()
    is_guessed: bool = False
    """Whether its constructor got guessed arguments."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Candidate:
    name: str
    value: nn.Module | type[nn.Module]


def find_model(source: Source, *, allow_guesses: bool) -> FoundModel:
    """Return the model in a file: by name, else the only instance, else the only class.

    Args:
        source: The file.
        allow_guesses: Whether required arguments of its class may be guessed.

    Raises:
        GradscopeError: There is none, or there are several.
        UserCodeError: Building it raised.
    """
    for name in _NAMES:
        value = getattr(source.module, name, None)
        # `model = None` at the top and `import model` are no models.
        if value is not None and not isinstance(value, ModuleType):
            return to_model(value, name, source.location, allow_guesses=allow_guesses)
    outline = outline_of(source.module)
    instances = _instances(source.module)
    classes = [] if instances else _classes(source.module, outline)
    usable = [c for c in classes if not required_parameters(c.value)]
    candidates = instances or usable
    if len(candidates) > 1:
        raise _several(candidates, outline)
    if not candidates and not (allow_guesses and len(classes) == 1):
        raise _none(source, classes)
    (chosen,) = candidates or classes
    found = to_model(chosen.value, chosen.name, source.location, allow_guesses=allow_guesses)
    kind = "nn.Module class" if inspect.isclass(chosen.value) else "nn.Module"
    without = " without arguments" if usable else ""
    others = _others(classes, chosen) if usable else ""
    note = f"the model is {chosen.name}, the only {kind} of {source.location!r}{without}{others}"
    return replace(found, notes=(note, *found.notes))


def _others(classes: list[_Candidate], chosen: _Candidate) -> str:
    """Return the classes that need arguments, in words: one of them may be meant."""
    calls = [_call(one.name, required_parameters(one.value)) for one in classes if one != chosen]
    return f"; not {', '.join(calls)}" if calls else ""


def _call(name: str, needed: Iterable[inspect.Parameter]) -> str:
    return f"{name}({', '.join(one.name for one in needed)})"


def to_model(value: object, name: str, location: str, *, allow_guesses: bool) -> FoundModel:
    """Return an `nn.Module`, built if the value is a class or factory.

    Args:
        value: A model, or a function or class that makes one.
        name: Name of the value.
        location: File that contains it.
        allow_guesses: Whether its required arguments may be guessed.

    Raises:
        GradscopeError: The value is no model and builds none.
    """
    if isinstance(value, nn.Module):
        return FoundModel(model=value)
    if not callable(value):
        raise GradscopeError(
            f"'{location}:{name}' is {type(value).__name__}, "
            "expected torch.nn.Module or a callable returning one"
        )
    missing = required_parameters(value)
    literals = guessed_arguments(missing) if missing else None
    if literals is not None and not allow_guesses:
        what = f"{_call(name, missing)} needs arguments"
        raise GuessNeededError(what, help=_guess_help(f"{location}:{name}({literals})"))
    if literals is None:
        return FoundModel(model=_checked(build(value, name, location), name, location))
    call = f"{name}({literals})"
    return FoundModel(
        model=_checked(_guessed(value, call), name, location),
        notes=(f"guessed the arguments: {call}",),
        is_guessed=True,
    )


def _guessed(function: Callable[..., object], call: str) -> object:
    """Call a function with guessed arguments."""
    expression = parse_expression(call)
    given = {} if expression.call is None else dict(expression.call.keywords)
    help_ = f"give yours, as in {call}"
    with UserCode(f"{call} failed with guessed arguments", lambda error: Advice(help=help_)):
        return function(**given)


def _checked(built: object, name: str, location: str) -> nn.Module:
    if not isinstance(built, nn.Module):
        help_ = "end it with: return model" if built is None else None
        raise GradscopeError(
            f"{name}() of {location!r} returned {type(built).__name__}, expected torch.nn.Module",
            help=help_,
        )
    return built


def _instances(module: ModuleType) -> list[_Candidate]:
    """Return the instances that may be the model, without losses, submodules and aliases.

    If some have parameters, the others (a single activation) are excluded too.
    """
    found: dict[int, _Candidate] = {}
    for name, value in vars(module).items():
        if isinstance(value, nn.Module) and not _is_loss(name, type(value)):
            # By `id`, because a file may bind one model to several names.
            found.setdefault(id(value), _Candidate(name=name, value=value))
    models = [c.value for c in found.values() if isinstance(c.value, nn.Module)]
    parts = {id(part) for model in models for part in members.modules(model) if part is not model}
    whole = {id(model): model for model in models if id(model) not in parts}
    trainable = [
        key for key, model in whole.items() if any(True for _ in members.parameters(model))
    ]
    return [found[key] for key in trainable or whole]


def _classes(module: ModuleType, outline: Outline) -> list[_Candidate]:
    """Return the model classes of the file that are no part or base of another one."""
    names = [
        name
        for name, value in vars(module).items()
        if inspect.isclass(value)
        and issubclass(value, nn.Module)
        # Imported classes are parts, or models of other files.
        and value.__module__ == module.__name__
        and value.__name__ == name
        and not _is_loss(name, value)
    ]
    uses = {name: outline.reachable(name) for name in names}
    # Two classes that use each other are both kept.
    whole = [
        name
        for name in names
        if not any(name in uses[other] and other not in uses[name] for other in names)
    ]
    return [_Candidate(name=name, value=getattr(module, name)) for name in whole]


def _is_loss(name: str, kind: type[nn.Module]) -> bool:
    is_named = name in ("criterion", "loss_fn") or kind.__name__.endswith(_LOSS_ENDINGS)
    return is_named or issubclass(kind, _Loss)


def _several(candidates: list[_Candidate], outline: Outline) -> GradscopeError:
    titles = []
    for candidate in candidates:
        line = outline.line_of(candidate.name)
        where = "class" if inspect.isclass(candidate.value) else line and f"line {line}"
        titles.append(f"{candidate.name} ({where})" if where else candidate.name)
    return GradscopeError(
        f"{len(candidates)} possible models: {', '.join(titles)}",
        help=f"choose one: --model {candidates[-1].name}",
    )


def _none(source: Source, classes: list[_Candidate]) -> GradscopeError:
    needs = [(candidate.name, required_parameters(candidate.value)) for candidate in classes]
    calls = [_call(name, missing) for name, missing in needs]
    what = f"found no model in {source.location!r} (looked for {_LOOKED_FOR})"
    cause = f"its nn.Module classes need arguments: {', '.join(calls)}" if calls else None
    # `inspect` has guessed the arguments of an only class already.
    if len(needs) == 1 and (literals := guessed_arguments(needs[0][1])) is not None:
        call = f"{source.location}:{needs[0][0]}({literals})"
        return GuessNeededError(what, cause=cause, help=_guess_help(call))
    return GradscopeError(
        what,
        cause=cause,
        help=call_help(*needs[0], source.location) if needs else _NO_CLASS_HELP,
    )


def _guess_help(target: str) -> str:
    return f'give the target as "{target}", or --allow-guesses'


_NO_CLASS_HELP = "write in the file:  def build_model(): return YourModel(...)"
