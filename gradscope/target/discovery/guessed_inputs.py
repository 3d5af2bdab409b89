"""Guesses the inputs of a model without a batch: shapes from its layers, tried by a forward."""

import ast
import copy
import random
import sys
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import islice, product

import torch
from torch import nn

from gradscope.errors import GradscopeError
from gradscope.frozen import dataclass
from gradscope.progress import tell_stage
from gradscope.target import members
from gradscope.target.batches import make_inputs
from gradscope.target.calling import (
    TARGET_NAMES,
    can_take,
    divide_batch,
    forward_signature,
    signature_of,
    source_nodes,
)
from gradscope.target.layer_inputs import InputLayer, input_layers, layer_title, specs_of
from gradscope.target.notation import parse_input
from gradscope.target.objectives import NOTHING
from gradscope.target.structures import named_tensors
from gradscope.target.user_code import UserCode

STATE_NAMES = frozenset({"h", "hx", "h0", "hidden", "state", "states", "hidden_state"})
"""Names of forward's argument for the state before the first step."""

_METHODS = ("init_hidden", "initHidden", "init_state", "initial_state", "get_initial_state")


@dataclass(frozen=True, slots=True, kw_only=True)
class InitialState:
    """A state before the first step."""

    value: object
    origin: str
    """Expression that makes it, as `model.init_hidden(4)`."""

    @property
    def widths(self) -> tuple[int, int] | None:
        """Rows and features of the first tensor; None without one that has both."""
        for _, tensor in named_tensors(self.value, "state"):
            return (tensor.shape[-2], tensor.shape[-1]) if tensor.dim() > 1 else None
        return None


def initial_states(model: nn.Module, rows: int) -> Iterator[InitialState]:
    """Yield states that an `--input` option cannot make: of the model's method, and LSTM's pairs.

    Args:
        model: A copy of the model: its method may change it.
        rows: Number of examples in the batch.
    """
    for name in _METHODS:
        method = getattr(model, name, None)
        if not callable(method):
            continue
        given = (rows,) if can_take(signature_of(method), 1) else ()
        try:
            with (
                # No devices: their states would initialize CUDA.
                torch.random.fork_rng(devices=[]),
                torch.no_grad(),
                UserCode("the state is not made"),
            ):
                value = method(*given)
        except GradscopeError:
            continue
        yield InitialState(value=value, origin=f"model.{name}({', '.join(map(str, given))})")
    for layer in members.modules(model):
        if isinstance(layer, nn.LSTM):
            layers = layer.num_layers * (2 if layer.bidirectional else 1)
            # `proj_size` shortens h, and not c.
            out = layer.proj_size or layer.hidden_size
            pair = (torch.zeros(layers, rows, out), torch.zeros(layers, rows, layer.hidden_size))
            yield InitialState(value=pair, origin="zeros for h and c")
        elif isinstance(layer, nn.LSTMCell):
            pair = (torch.zeros(rows, layer.hidden_size), torch.zeros(rows, layer.hidden_size))
            yield InitialState(value=pair, origin="zeros for h and c")


_TRIES = 80
_SECONDS = 20.0
"""Limits of the search: a model that accepts none of these inputs needs the user's batch."""

_LAYERS = 6
"""Number of layers whose inputs are tried for one argument."""

_TOKEN_PARTS = ("ids", "idx", "token")
"""Parts of names of arguments that hold token numbers."""

_TIMES = frozenset(
    {"t", "time", "times", "timestep", "timesteps", "sigma", "sigmas", "noise_level"}
)


@dataclass(frozen=True, slots=True, kw_only=True)
class GuessedInputs:
    """Inputs that the model accepts."""

    batch: object
    options: str
    """The `--input` options that make the same batch."""
    reason: str
    """The layer that suggested the first input, as `fc1 Linear(784, 10)`."""


def guess_inputs(model: nn.Module, seed: int | None) -> GuessedInputs | None:
    """Return inputs that a forward accepts; None if no guess fits.

    Forwards run without gradients on a copy of the model, and leave the random state unchanged.
    """
    names = _required(model)
    if names is None:
        return None
    is_mapping = len(names) == 1 and bool(keys := keys_read_by(model, names[0]))
    if is_mapping:
        names = keys
    trial = _Trial(model)
    if trial.model is None:
        return None
    end = time.monotonic() + _SECONDS
    for guess in islice(_guesses(trial.model, names, seed, is_mapping=is_mapping), _TRIES):
        tell_stage(f"guessing the batch: trying {guess.options}")
        if trial.accepts(guess.batch):
            return guess
        if time.monotonic() > end:
            break
    return None


def _guesses(
    model: nn.Module, names: tuple[str, ...], seed: int | None, *, is_mapping: bool
) -> Iterator[GuessedInputs]:
    """Yield inputs, the likeliest first."""
    state = next((name for name in names[1:] if name.lower() in STATE_NAMES), None)
    if state is not None:
        others = tuple(name for name in names if name != state)
        yield from _with_states(model, others, state, seed)
    for specs in _combinations(model, names):
        texts = _named(names, specs) if is_mapping or len(specs) > 1 else specs
        yield GuessedInputs(
            batch=make_inputs(texts, seed=seed, vocabulary=None),
            options=" ".join(f"--input {text}" for text in texts),
            reason=_reason(model, specs[0]),
        )


def _with_states(
    model: nn.Module, names: tuple[str, ...], state: str, seed: int | None
) -> Iterator[GuessedInputs]:
    """Yield inputs with an initial state that no option can make."""
    for specs in _combinations(model, names):
        rows = parse_input(specs[0]).dims[0]
        for initial in initial_states(model, rows):
            for first in (specs[0], *_beside(initial, model)):
                texts = _named(names, (first, *specs[1:]))
                batch = make_inputs(texts, seed=seed, vocabulary=None)
                assert isinstance(batch, dict)
                yield GuessedInputs(
                    batch={**batch, state: initial.value},
                    options=f"{' '.join(f'--input {text}' for text in texts)}, "
                    f"{state} from {initial.origin}",
                    reason=_reason(model, specs[0]),
                )


def _beside(initial: InitialState, model: nn.Module) -> Iterator[str]:
    """Yield inputs that together with a state are as wide as a layer's input."""
    if initial.widths is None:
        return
    rows, width = initial.widths
    for layer in input_layers(model):
        if isinstance(layer.module, nn.Linear) and layer.module.in_features > width:
            yield f"{rows},{layer.module.in_features - width}"


def _required(model: nn.Module) -> tuple[str, ...] | None:
    """Return the tensors that forward needs; None if they are not known by name."""
    parameters = forward_signature(model).parameters.values()
    positional = [p for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    needed = [p for p in positional if p.default is p.empty]
    needed += [p for p in parameters if p.kind is p.KEYWORD_ONLY and p.default is p.empty]
    # Several inputs become a mapping of arguments by name, which these do not take.
    if len(needed) > 1 and any(p.kind is p.POSITIONAL_ONLY for p in needed):
        return None
    if not needed:  # as `forward(*inputs)` and `forward(x=None)`
        return ("input",) if positional or parameters else None
    return tuple(p.name for p in needed)


def _named(names: tuple[str, ...], specs: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(f"{name}={spec}" for name, spec in zip(names, specs, strict=True))


def _combinations(model: nn.Module, names: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    """Yield a specification for each argument, the likeliest first."""
    layers = [layer.module for layer in input_layers(model)]
    for first in _first_specs(model, layers, names):
        yield from product([first], *(_later_specs(name, first, layers) for name in names[1:]))


def _first_specs(
    model: nn.Module, layers: list[InputLayer], names: tuple[str, ...]
) -> Iterator[str]:
    tokens = [layer for layer in layers if isinstance(layer, nn.Embedding | nn.EmbeddingBag)]
    is_tokens = any(part in names[0] for part in _TOKEN_PARTS)
    # A name such as `input_ids` says more than the order of registration.
    ordered = [*tokens, *layers] if is_tokens else layers
    seen = set()
    for layer in dict.fromkeys(ordered[:_LAYERS]):
        for spec in specs_of(layer, model):
            if spec not in seen:
                seen.add(spec)
                yield spec
    # For models of bare parameters, whose matrices have a dimension of features.
    for parameter in islice((p for p in members.parameters(model) if p.dim() == 2), 2):
        yield from (f"8,{size}" for size in parameter.shape)


def _later_specs(name: str, first: str, layers: list[InputLayer]) -> tuple[str, ...]:
    """Return specifications of a further argument, by its name and the first one's shape."""
    dims = parse_input(first).dims
    rows, length = dims[0], dims[1] if len(dims) > 1 else 1
    sizes = [layer.num_embeddings for layer in layers if isinstance(layer, nn.Embedding)]
    fewest, name = min(sizes, default=2), name.lower()
    if name in STATE_NAMES:
        return tuple(_states(layers, rows))
    if name in _TIMES:
        steps = fewest if sizes else 1000
        return (f"int64[0,{steps}]:{rows}", f"{rows}", f"{rows},1")
    if name in TARGET_NAMES or "class" in name or "cond" in name:
        return (f"int64[0,{fewest}]:{rows}", f"int64[0,{fewest}]:{rows},{length}", first)
    if any(part in name for part in _TOKEN_PARTS) and sizes and "float" in parse_input(first).dtype:
        return tuple(f"int64[0,{size}]:{rows},16" for size in sizes)
    by_part = {
        "mask": (f"bool:{rows},{length}", f"bool:{length},{length}", f"bool:{rows},1,1,{length}"),
        "len": (f"int64[{length},{length + 1}]:{rows}",),
        "edge": (f"int64[0,{rows}]:2,{3 * rows}", f"{rows},{rows}"),
        "adj": (f"float32[0,1]:{rows},{rows}", f"float32[0,1]:{rows},{length},{length}"),
    }
    found = next((specs for part, specs in by_part.items() if part in name), None)
    return found or _like_layers(first, sizes, layers)


def _like_layers(first: str, sizes: list[int], layers: list[InputLayer]) -> tuple[str, ...]:
    """Return the first argument's specification, and those that other layers accept."""
    dims = ",".join(map(str, parse_input(first).dims))
    rows = dims.partition(",")[0]
    tokens = (f"int64[0,{size}]:{dims}" for size in reversed(sizes))
    widths = (layer.in_features for layer in layers if isinstance(layer, nn.Linear))
    vectors = (f"{rows},{width}" for width in islice(widths, _LAYERS))
    return tuple(dict.fromkeys((*tokens, first, *vectors)))


def _states(layers: list[InputLayer], rows: int) -> Iterator[str]:
    for layer in layers:
        if isinstance(layer, nn.RNNBase):
            ways = 2 if layer.bidirectional else 1
            yield f"{layer.num_layers * ways},{rows},{layer.hidden_size}"
        elif isinstance(layer, nn.RNNCellBase):
            yield f"{rows},{layer.hidden_size}"
        elif isinstance(layer, nn.Linear):
            yield f"{rows},{layer.out_features}"


def _reason(model: nn.Module, spec: str) -> str:
    for layer in input_layers(model):
        if spec in specs_of(layer.module, model):
            return f"{layer.name} {layer_title(layer.module)}".strip()
    return "the shape of a parameter"


class _Trial:
    """Runs forwards on a copy of the model."""

    def __init__(self, model: nn.Module) -> None:
        self._signature = forward_signature(model)
        try:
            with UserCode("the model cannot be copied"):
                # A forward may change buffers, or count its calls.
                self.model: nn.Module | None = copy.deepcopy(model)
        except GradscopeError:
            self.model = None  # forwards of the model itself could change it

    def accepts(self, batch: object) -> bool:
        """Return whether the model turns a batch into a tensor.

        It may be one of integers: the finding about `argmax()` in forward needs an input.
        """
        if self.model is None:
            return False
        call = divide_batch(batch, self._signature, NOTHING)
        try:
            with (
                warnings.catch_warnings(),
                _same_random_state(),
                torch.no_grad(),
                UserCode("the guess does not fit"),
            ):
                warnings.simplefilter("ignore")  # about inputs that are not the user's
                output = self.model(*call.args, **call.kwargs)
        except GradscopeError:
            return False
        return any(True for _ in named_tensors(output, "output"))


@contextmanager
def _same_random_state() -> Iterator[None]:
    # `fork_rng` covers torch's generators only. Without an import, nothing draws from numpy's.
    before, numpy = random.getstate(), sys.modules.get("numpy")
    of_numpy = None if numpy is None else numpy.random.get_state()
    with torch.random.fork_rng(devices=[]):
        try:
            yield
        finally:
            random.setstate(before)
            if numpy is not None:
                numpy.random.set_state(of_numpy)


def keys_read_by(model: nn.Module, argument: str) -> tuple[str, ...]:
    """Return the keys in `argument["key"]`, in the order of the source.

    Args:
        model: Its forward is read, not run.
        argument: Name of the argument of forward.
    """
    found = [
        (node.lineno, node.col_offset, node.slice.value)
        for node in source_nodes(type(model).forward)
        if isinstance(node, ast.Subscript)
        and isinstance(node.ctx, ast.Load)
        and isinstance(node.value, ast.Name)
        and node.value.id == argument
        and isinstance(node.slice, ast.Constant)
        and isinstance(node.slice.value, str)
    ]
    return tuple(dict.fromkeys(key for *_, key in sorted(found)))
