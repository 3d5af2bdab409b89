"""Finds the arguments of a script's trainer, as `Trainer(gradient_clip_val=1.0)`."""

import ast
import functools
from collections.abc import Iterable, Iterator, Mapping
from types import CodeType, FrameType

from gradscope.capture.source.lines import Line
from gradscope.capture.source.statements import code_at, tree_of
from gradscope.recording.evidence.training import ArgumentKind

_LIMITS = frozenset(
    {
        "clip_grad",
        "clip_grad_norm",
        "grad_clip",
        "grad_clip_norm",
        "gradient_clip",
        "gradient_clip_val",
        "gradient_clipping",
        "max_grad_norm",
    }
)
"""Names of the limit in trainers: transformers, TRL, Lightning, DeepSpeed, timm."""

_SETTING: Mapping[str, ArgumentKind] = {
    "accumulate_grad_batches": "accumulation",
    "gradient_accumulation_steps": "accumulation",
    "learning_rate": "learning rate",
    "bf16": "precision",
    "fp16": "precision",
    "mixed_precision": "precision",
    "precision": "precision",
}
"""By name of an argument of Lightning, transformers, TRL and Accelerate: what it sets."""

_TRAINERS = ("Accelerator", "Arguments", "Config", "Fabric", "Trainer")
"""Ends of the names of what has such arguments."""

_WITH_DEFAULT = "TrainingArguments"
"""End of the names of classes that clip unless the script says otherwise."""

_TRL, _CONFIG = "trl", "Config"
"""Package whose classes with names of this end derive from such a class."""


def limit_argument(frames: Iterable[FrameType], limit: float) -> Line | None:
    """Return the line of the argument that sets a trainer's limit; None if it is not found.

    A call that leaves the limit to its default is the next best.

    Args:
        frames: Running frames of the user's code, innermost first.
        limit: Largest norm or value.
    """
    codes = {frame.f_code.co_filename: frame.f_code for frame in frames}
    for code in codes.values():
        if (line := _limit_line(code.co_filename, limit)) is not None:
            return Line(_code_around(code, line), line)
    return None


def trainer_arguments(file: str) -> Iterator[tuple[ArgumentKind, Line]]:
    """Yield what the arguments of trainers in a file set, where one argument alone sets it."""
    found: dict[ArgumentKind, list[int]] = {}
    tree = tree_of(file)
    dictionaries = _dictionaries(tree)
    for node in ast.walk(tree):
        match node:
            case ast.Call(func=ast.Name(id=name) | ast.Attribute(attr=name)):
                if name.endswith(_TRAINERS):
                    for kind, line in _settings(node, dictionaries):
                        found.setdefault(kind, []).append(line)
    for kind, lines in found.items():
        # Of several calls, the source does not tell which one has run.
        code = code_at(file, lines[0]) if len(lines) == 1 else None
        if code is not None:
            yield kind, Line(code, lines[0])


def _settings(
    call: ast.Call, dictionaries: Mapping[str, ast.expr]
) -> Iterator[tuple[ArgumentKind, int]]:
    """Yield what the arguments of a call set, with their lines."""
    for name, value in _arguments(call, dictionaries):
        # `fp16=False` sets nothing: the precision comes from elsewhere.
        is_off = isinstance(value, ast.Constant) and value.value in (None, False)
        kind = _SETTING.get(name)
        if kind is not None and not is_off:
            yield kind, value.lineno


def _arguments(
    call: ast.Call, dictionaries: Mapping[str, ast.expr]
) -> Iterator[tuple[str, ast.expr]]:
    """Yield the keyword arguments of a call, and the entries of its `**options`."""
    for one in call.keywords:
        if one.arg is not None:
            yield one.arg, one.value
            continue
        given = dictionaries.get(one.value.id) if isinstance(one.value, ast.Name) else one.value
        match given:
            case ast.Dict():
                for key, value in zip(given.keys, given.values, strict=True):
                    if isinstance(key, ast.Constant):
                        yield str(key.value), value
            case ast.Call(func=ast.Name(id="dict")):
                yield from ((entry.arg, entry.value) for entry in given.keywords if entry.arg)


def _dictionaries(tree: ast.Module) -> Mapping[str, ast.expr]:
    """Return the values of names that a file assigns once, and whose entries it does not change."""
    values: dict[str, list[ast.expr | None]] = {}
    for node in ast.walk(tree):
        match node:
            case ast.Assign(targets=[ast.Name(id=name)], value=value):
                values.setdefault(name, []).append(value)
            case ast.AnnAssign(target=ast.Name(id=name), value=ast.expr() as value):
                values.setdefault(name, []).append(value)
            case (
                ast.AugAssign(target=ast.Name(id=name))
                | ast.Subscript(value=ast.Name(id=name), ctx=ast.Store() | ast.Del())
                | ast.Call(func=ast.Attribute(value=ast.Name(id=name), attr="update" | "pop"))
            ):
                values.setdefault(name, []).append(None)
    return {name: one for name, (one, *more) in values.items() if one is not None and not more}


def clips_itself(call: ast.Call | None) -> bool:
    """Return whether a call of the script's is one that clips."""
    match call:
        case ast.Call(func=ast.Attribute(attr=name) | ast.Name(id=name)):
            return "clip" in name
    return False


@functools.lru_cache(maxsize=64)
def _limit_line(file: str, limit: float) -> int | None:
    tree = tree_of(file)
    given = list(_limits(tree))
    equal = [value for value in given if _number(value) == limit]
    # A variable may have any value.
    unknown = [value for value in given if _number(value) is None]
    if not given:
        unknown = list(_with_default(tree))
    found = equal or unknown
    return found[0].lineno if len(found) == 1 else None


def _limits(tree: ast.Module) -> Iterator[ast.expr]:
    """Yield the values of keyword arguments, and of items of a dictionary, that are limits."""
    for node in ast.walk(tree):
        match node:
            case ast.keyword(arg=str(name), value=value) if name in _LIMITS:
                yield value
            case ast.Dict():
                for key, value in zip(node.keys, node.values, strict=True):
                    if isinstance(key, ast.Constant) and key.value in _LIMITS:
                        yield value


def _number(value: ast.expr) -> float | None:
    match value:
        case ast.Constant(value=int(number) | float(number)):
            return float(number)
    return None


def _with_default(tree: ast.Module) -> Iterator[ast.expr]:
    of_trl = {
        alias.asname or alias.name
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == _TRL
        for alias in node.names
        if alias.name.endswith(_CONFIG)
    }
    for node in ast.walk(tree):
        match node:
            case ast.Call(func=ast.Name(id=name) | ast.Attribute(attr=name)):
                if name.endswith(_WITH_DEFAULT) or name in of_trl:
                    yield node


def _code_around(code: CodeType, line: int) -> CodeType:
    """Return the code that holds a line: that of a frame, or of a function inside it."""
    inner = (one for one in code.co_consts if isinstance(one, CodeType))
    return next(
        (
            _code_around(one, line)
            for one in inner
            if any(number == line for *_, number in one.co_lines())
        ),
        code,
    )
