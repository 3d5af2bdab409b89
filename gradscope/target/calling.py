"""Divides a batch into the model's arguments and the loss's.

The rules are:

- A mapping becomes keyword arguments. Keys that `forward` does not accept are dropped, unless it
  accepts `**kwargs`. If it accepts none of them by name and has one positional parameter, that
  gets the whole mapping (or the only value that is not a target).
- A tuple or list becomes positional arguments. If the loss needs a target, the last element is the
  target. If it needs none and `forward` accepts one argument fewer, the last is dropped. If the
  loss takes the whole batch, `forward` gets as many of the first elements as it accepts. The only
  parameter of `forward(self, batch)` gets a batch of three or more as a whole, and a pair if its
  source takes it apart.
- Anything else is the single argument. This includes special tuples: a `PackedSequence`, and a
  `NamedTuple` unless its fields are an input and a target, as `x` and `y`, or `forward` needs more
  than one argument.
"""

import ast
import inspect
import textwrap
from collections.abc import Callable, Iterator, Mapping
from typing import Literal, TypeGuard

import torch
from torch import nn
from torch.nn.utils.rnn import PackedSequence

from gradscope.frozen import dataclass
from gradscope.target.members import plain

TARGET_NAMES = frozenset(
    {
        "target",
        "targets",
        "label",
        "labels",
        "y",
        "y_true",
        "true",
        "truth",
        "ground_truth",
        "expected",
    }
)
"""Keys and parameter names for the target."""

OUTPUT_NAMES = frozenset(
    {"output", "outputs", "out", "prediction", "predictions", "pred", "preds", "predicted", "input",
     "logits", "logit", "y_pred", "y_hat", "yhat"}
)  # fmt: skip
"""Parameter names of a loss for the model's output."""

MODEL_NAMES = frozenset({"model", "net", "network", "module", "agent", "policy"})
"""Names of a first parameter for the model itself."""

BATCH_NAMES = frozenset(
    {"batch", "data", "sample", "samples", "example", "examples", "inputs", "features"}
)
"""Parameter names for the whole batch."""

_INPUT_NAMES = frozenset({"x", "input", "inputs", "image", "images", "features", "data"})
"""Field names of a pair for the model's input."""

Wanted = Literal["nothing", "target", "batch"]

_ANYTHING = inspect.Signature(
    [
        inspect.Parameter("args", inspect.Parameter.VAR_POSITIONAL),
        inspect.Parameter("kwargs", inspect.Parameter.VAR_KEYWORD),
    ]
)
_POSITIONAL = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)


@dataclass(frozen=True, slots=True, kw_only=True)
class SecondArgument:
    """The argument of a loss function besides the output."""

    wanted: Wanted
    name: str
    is_before_output: bool = False
    """Whether it comes first, as in `loss(y_true, y_pred)`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """A batch divided into the model's arguments and the loss's."""

    args: tuple[object, ...]
    kwargs: Mapping[str, object]
    second: object
    """The loss's argument besides the output; None if the batch has none."""
    second_name: str | None
    """`target` or `batch`; None if there is none."""
    left_out: tuple[str, ...]
    """Keys or indices of the batch that neither the model nor the loss gets."""


def signature_of(function: Callable[..., object]) -> inspect.Signature:
    """Return the signature, or that of `f(*args, **kwargs)` for builtins without one."""
    try:
        return inspect.signature(function)
    except (ValueError, TypeError):
        return _ANYTHING


class ForwardSignature(inspect.Signature):
    """The signature of a forward, and what its source does with its first argument."""

    takes_apart: bool = False
    """Whether it picks or unpacks elements of it, as of a batch."""


def forward_signature(model: nn.Module) -> inspect.Signature:
    """Return the signature of the user's `forward` without self, behind known wrappers."""
    while True:
        inner = plain(model)
        # Their own `forward` takes any arguments, and says nothing about the model's.
        if isinstance(model, nn.DataParallel | nn.parallel.DistributedDataParallel):
            inner = model.module
        if inner is model:
            return _with_source(model.forward)
        model = inner


def _with_source(forward: Callable[..., object]) -> inspect.Signature:
    plain_signature = signature_of(forward)
    names = positional_names(plain_signature)
    if not names or names[0] not in BATCH_NAMES - _INPUT_NAMES:
        return plain_signature
    signature = ForwardSignature(list(plain_signature.parameters.values()))
    signature.takes_apart = _takes_apart(forward, names[0])
    return signature


def positional_names(signature: inspect.Signature) -> list[str]:
    """Return the parameters that can be passed by position."""
    return [name for name, p in signature.parameters.items() if p.kind in _POSITIONAL]


def second_argument(loss: Callable[..., object]) -> SecondArgument:
    """Return the argument that a loss function needs besides the output, by its signature."""
    # The signature of a module itself is that of `__call__`, which takes anything.
    function = loss.forward if isinstance(loss, nn.Module) else loss
    signature = signature_of(function)
    names = positional_names(signature)
    takes_any = any(p.kind is p.VAR_POSITIONAL for p in signature.parameters.values())
    if len(names) < 2:
        return SecondArgument(wanted="target" if takes_any else "nothing", name="target")
    if names[0] in TARGET_NAMES and names[1] in OUTPUT_NAMES:
        return SecondArgument(wanted="target", name=names[0], is_before_output=True)
    is_batch = names[1] in BATCH_NAMES or (
        names[1] not in TARGET_NAMES and _takes_apart(function, names[1])
    )
    return SecondArgument(wanted="batch" if is_batch else "target", name=names[1])


def source_nodes(function: Callable[..., object]) -> Iterator[ast.AST]:
    """Yield the nodes of a function's source, which is read, not run; none if it is unknown."""
    try:
        tree = ast.parse(textwrap.dedent(inspect.getsource(function)))
    except (OSError, TypeError, SyntaxError):
        return
    yield from ast.walk(tree)


def _takes_apart(function: Callable[..., object], name: str) -> bool:
    """Return whether a function picks or unpacks elements of an argument, as of a batch."""
    for one in source_nodes(function):
        match one:
            case ast.Subscript(value=ast.Name(id=owner), slice=ast.Constant()):
                if owner == name:
                    return True
            case ast.Assign(targets=[ast.Tuple()], value=ast.Name(id=owner)):
                if owner == name:
                    return True
    return False


def divide_batch(batch: object, forward: inspect.Signature, second: SecondArgument) -> Call:
    """Divide a batch between the model, whose signature is without self, and the loss."""
    if isinstance(batch, Mapping):
        return _divide_mapping(batch, forward, second)
    if _is_plain_sequence(batch) or _is_spread(batch, forward, second):
        # A data set of inputs alone gives tuples of one.
        if len(batch) == 1:
            return divide_batch(batch[0], forward, second)
        if not _wants_whole(batch, forward):
            return _divide_sequence(list(batch), batch, forward, second)
    has_second = second.wanted != "nothing"
    return Call(
        args=(batch,),
        kwargs={},
        second=batch if has_second else None,
        second_name="batch" if has_second else None,
        left_out=(),
    )


def _wants_whole(batch: tuple[object, ...] | list[object], forward: inspect.Signature) -> bool:
    """Return whether `forward` takes the batch as its only argument."""
    names, count = positional_names(forward), len(batch)
    if not can_take(forward, 1) or not {*names[:1]} & (BATCH_NAMES - _INPUT_NAMES):
        return False
    if count == 2 and isinstance(forward, ForwardSignature) and not can_take(forward, 2):
        # Elements of a tensor are rows, which no model picks by number.
        return forward.takes_apart and isinstance(batch[0], torch.Tensor)
    return not (can_take(forward, count) or can_take(forward, count - 1))


def _is_plain_sequence(value: object) -> TypeGuard[tuple[object, ...] | list[object]]:
    return isinstance(value, tuple | list) and not (
        isinstance(value, PackedSequence) or hasattr(value, "_fields")
    )


def _is_spread(
    batch: object, forward: inspect.Signature, second: SecondArgument
) -> TypeGuard[tuple[object, ...]]:
    """Return whether a named tuple is divided like a plain one."""
    if isinstance(batch, PackedSequence) or not isinstance(batch, tuple):
        return False
    parameters = list(forward.parameters.values())
    if not parameters or not can_take(forward, 1):
        return True
    first = parameters[0]
    takes_whole = (
        first.annotation in (type(batch), type(batch).__name__)
        or first.name == second.name
        or first.name in BATCH_NAMES - _INPUT_NAMES
    )
    return _is_pair(batch) and not takes_whole


def _is_pair(batch: tuple[object, ...]) -> bool:
    fields: tuple[str, ...] = getattr(batch, "_fields", ())
    return len(fields) == 2 and fields[0] in _INPUT_NAMES and fields[1] in TARGET_NAMES


def target_key(batch: Mapping[object, object], parameter: str) -> str | None:
    """Return the key of a batch's target, if exactly one is possible.

    The loss function's own parameter name comes first, then the usual names.
    """
    if parameter in batch:
        return parameter
    keys = [key for key in batch if isinstance(key, str) and key in TARGET_NAMES]
    # Of several, a wrong guess would train on the wrong target.
    return keys[0] if len(keys) == 1 else None


def _divide_mapping(
    batch: Mapping[object, object], forward: inspect.Signature, second: SecondArgument
) -> Call:
    key = target_key(batch, second.name)
    args, kwargs = _arguments_of_mapping(batch, forward, key)
    given: object = None if second.wanted == "nothing" else batch
    if second.wanted == "target" and key is not None:
        given = batch[key]
    used = {*kwargs, key if second.wanted == "target" else None}
    is_whole = bool(args) or second.wanted == "batch"
    return Call(
        args=args,
        kwargs=kwargs,
        second=given,
        second_name=_second_name(second.wanted, is_target=key is not None),
        left_out=() if is_whole else tuple(str(name) for name in batch if name not in used),
    )


def _second_name(wanted: Wanted, *, is_target: bool) -> str | None:
    if wanted == "nothing":
        return None
    return "target" if wanted == "target" and is_target else "batch"


def _arguments_of_mapping(
    batch: Mapping[object, object], forward: inspect.Signature, key: str | None
) -> tuple[tuple[object, ...], dict[str, object]]:
    parameters = forward.parameters.values()
    takes_any = any(p.kind is p.VAR_KEYWORD for p in parameters)
    by_name = {p.name for p in parameters if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)}
    named = {str(k): value for k, value in batch.items() if takes_any or k in by_name}
    required = [p for p in parameters if p.kind in _POSITIONAL and p.default is p.empty]
    if len(required) != 1 or required[0].name in named:
        return (), named
    # The only required argument has a name that no key has.
    others = [k for k in batch if k != key]
    if required[0].name in BATCH_NAMES or len(others) != 1:
        return (batch,), {}
    return (batch[others[0]],), {}


def _divide_sequence(
    items: list[object],
    batch: object,
    forward: inspect.Signature,
    second: SecondArgument,
) -> Call:
    last_is_target = len(items) > 1 and _leaves_last(items, forward, second)
    inputs = items[:-1] if last_is_target else items
    if second.wanted == "batch" and not can_take(forward, len(inputs)):
        # The loss picks the rest.
        fitting = [n for n in range(1, len(inputs)) if can_take(forward, n)]
        inputs = items[: max(fitting, default=len(inputs))]
    args, kwargs = _arguments_of_items(inputs, forward, is_alone=last_is_target)
    takes_target = second.wanted == "target" and (last_is_target or second.name in TARGET_NAMES)
    given: object = None
    if second.wanted != "nothing":
        given = items[-1] if takes_target and len(items) > 1 else batch
    is_dropped = last_is_target and second.wanted == "nothing"
    return Call(
        args=args,
        kwargs=kwargs,
        second=given,
        second_name=_second_name(second.wanted, is_target=takes_target and len(items) > 1),
        left_out=(f"[{len(items) - 1}]",) if is_dropped else (),
    )


def _leaves_last(items: list[object], forward: inspect.Signature, second: SecondArgument) -> bool:
    """Return whether the model is called without the last element of the batch."""
    first = items[0]
    if len(items) == 2 and isinstance(first, Mapping):
        return any(key in forward.parameters for key in first) or not can_take(forward, 2)
    arguments = len(first) if isinstance(first, tuple) and _is_plain_sequence(first) else None
    if len(items) == 2 and arguments is not None and can_take(forward, arguments):
        return True
    fits_without = len(items) == 2 or can_take(forward, len(items) - 1)
    if second.wanted == "target":
        return can_take(forward, 1) if len(items) == 2 else fits_without
    return not can_take(forward, len(items)) and fits_without


def _arguments_of_items(
    inputs: list[object], forward: inspect.Signature, *, is_alone: bool
) -> tuple[tuple[object, ...], dict[str, object]]:
    """Return the arguments for a sequence's elements; a single one may be a container itself."""
    if not (is_alone and len(inputs) == 1):
        return tuple(inputs), {}
    only = inputs[0]
    if isinstance(only, Mapping):
        return _arguments_of_mapping(only, forward, None)
    if _is_plain_sequence(only) and can_take(forward, len(only)):
        # A list is more often one argument, such as images of different sizes.
        spreads = not can_take(forward, 1) or (isinstance(only, tuple) and len(only) > 1)
        return (tuple(only), {}) if spreads else ((only,), {})
    return (only,), {}


def can_take(signature: inspect.Signature, count: int) -> bool:
    """Return whether a function can be called with exactly this many positional arguments."""
    try:
        # `bind` knows defaults, keyword-only parameters and `*args`.
        signature.bind(*[None] * count)
    except TypeError:
        return False
    return True
