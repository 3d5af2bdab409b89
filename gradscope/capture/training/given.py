"""Finds what existed before recording started: models and optimizers that the script passes."""

import ast
import gc
import linecache
import sys
from collections.abc import Iterator
from itertools import compress
from types import CodeType, FrameType, ModuleType

from torch import nn
from torch.optim import Optimizer

from gradscope.capture.source.lines import Line
from gradscope.capture.training.locations import NOWHERE, Location, Locations, stem
from gradscope.frozen import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class GivenObjects:
    """A model and an optimizer, and the script's names for them."""

    model: nn.Module | None = None
    model_name: str | None = None
    optimizer: Optimizer | None = None
    optimizer_name: str | None = None
    made_at: Location = NOWHERE
    """Line that made the optimizer."""


def given_by(
    model: nn.Module | None, optimizer: Optimizer | None, frame: FrameType | None
) -> GivenObjects:
    """Return the arguments of a call, with their names in the call.

    Args:
        model: Its first argument, or that of this name.
        optimizer: Its second argument, or that of this name.
        frame: The frame of the caller during the call.
    """
    location = Locations().of(frame)
    call = location.call()
    name = _argument(call, 1, "optimizer") or _global_name(optimizer, frame)
    return GivenObjects(
        model=model,
        model_name=_argument(call, 0, "model") or _global_name(model, frame),
        optimizer=optimizer,
        optimizer_name=name,
        made_at=_making(optimizer, name, location.code),
    )


def compiled_models() -> list[nn.Module]:
    """Return the models that were compiled already."""
    frames = sys.modules.get("torch._dynamo.eval_frame")
    if frames is None or not _has_compiled(frames):
        return []
    # By type: reading `__class__` of some objects runs their code, as does hashing of some types.
    # There may be millions of objects: no Python code runs for each.
    objects = gc.get_objects()
    kinds = set(map(id, _with_subclasses(nn.Module)))
    chosen = map(kinds.__contains__, map(id, map(type, objects)))
    modules: list[nn.Module] = list(compress(objects, chosen))
    wrapper: type[nn.Module] = frames.OptimizedModule
    return [
        one
        for one in modules
        if issubclass(type(one), wrapper) or vars(one).get("_compiled_call_impl") is not None
    ]


def _has_compiled(frames: ModuleType) -> bool:
    """Whether torch may have compiled anything: to search all objects takes 0.1 s and more.

    Optimizers import the compiler in any script.
    """
    # The first is set by a first compiled call; the second has an entry for what is not compiled
    # too, and is emptied by `torch.compiler.reset()`.
    return not getattr(nn.Module, "___needs_generation_tag_patch", True) or any(
        map(callable, getattr(frames, "cached_backends", {0: id}).values())
    )


def _with_subclasses(kind: type) -> Iterator[type]:
    """Yield a class and its subclasses, one of several bases more than once."""
    yield kind
    below: list[type] = type.__subclasses__(kind)  # a metaclass may have its own
    for one in below:
        yield from _with_subclasses(one)


def _argument(call: ast.Call | None, position: int, keyword: str) -> str | None:
    """Return the name of an argument in the call, None if it has none."""
    if call is None:
        return None
    by_keyword = (one.value for one in call.keywords if one.arg == keyword)
    value = next(by_keyword, None)
    if value is None and len(call.args) > position:
        value = call.args[position]
    return None if value is None else stem(value)


def _global_name(value: object, frame: FrameType | None) -> str | None:
    """Return the global variable that holds an object, if no source shows its name."""
    if value is None or frame is None:
        return None
    names = (name for name, held in list(frame.f_globals.items()) if held is value)
    return next((name for name in names if not name.startswith("_")), None)


def _making(optimizer: Optimizer | None, name: str | None, code: CodeType | None) -> Location:
    """Return the only line of a file that makes such an optimizer with this name."""
    if optimizer is None or name is None or code is None:
        return NOWHERE
    lines = list(_lines_of(type(optimizer).__name__, name, code.co_filename))
    # Of several such lines, the source does not tell which one ran last.
    if len(lines) != 1:
        return NOWHERE
    line = Line(code, lines[0])
    return Location(line, line, None, 0)


def _lines_of(class_name: str, name: str, file: str) -> Iterator[int]:
    try:
        tree = ast.parse("".join(linecache.getlines(file)))
    except (SyntaxError, ValueError, RecursionError):
        return  # for example, a notebook's cell with magics
    for node in ast.walk(tree):
        match node:
            case ast.Assign(targets=[target], value=ast.Call(func=made)):
                if stem(target) == name and (stem(made) or "").split(".")[-1] == class_name:
                    yield node.value.lineno
