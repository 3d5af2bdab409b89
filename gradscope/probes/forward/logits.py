"""Measures logits: attention scores by head, outputs before a loss, and the choices of routers."""

import math
from collections.abc import Iterator

import torch
from torch import Tensor

from gradscope.capture.observed_calls import argument
from gradscope.frozen import dataclass
from gradscope.probes.context import ProbeContext
from gradscope.probes.forward.activations import MASKED
from gradscope.probes.forward.operations import (
    NodeNumber,
    Operation,
    Positions,
    is_readable,
    reference,
)
from gradscope.recording.evidence.forward import LogitRecord, RouterRecord

_ROWS = 64
"""Maximum number of queries, or rows of outputs, that are measured; they are equally spaced."""
_EXAMPLES = 4
"""Maximum number of examples whose attention scores are measured."""
_KEYS = 4096
"""Maximum number of keys whose attention scores are measured; they are equally spaced."""
_MOST_EXPERTS = 1024

_FUSED = "scaled_dot_product_"
_WITH_BIAS = ("efficient_attention", "cudnn_attention")
"""Fused kernels whose fourth argument is a mask."""


@dataclass(frozen=True, slots=True)
class _Logits:
    number: NodeNumber
    kind: str
    largest: tuple[float, ...]
    log_normaliser: float
    rows: int


@dataclass(frozen=True, slots=True)
class _Choices:
    number: NodeNumber
    chosen: int
    rows: int
    shares: tuple[float, ...]
    entropy: float


class LogitWatch:
    """Measures logits among the operations of a forward."""

    def __init__(self) -> None:
        self._logits: list[_Logits] = []
        self._choices: list[_Choices] = []

    def see(self, operation: Operation, tensor: Tensor, number: NodeNumber) -> None:
        """Measure the logits that an operation was given; its output is part of the graph."""
        plain = operation.name.strip("_").removeprefix("safe_")
        if not tensor.numel():
            return
        if plain == "softmax":
            self._see_scores(operation, number)
        elif plain in ("log_softmax", "cross_entropy"):
            self._see_outputs(operation, plain, number)
        elif plain in ("topk", "max"):
            self._see_choices(operation, plain, tensor, number)
        else:
            self.see_attention(operation, tensor, number)

    def see_attention(self, operation: Operation, tensor: Tensor, number: NodeNumber) -> None:
        """Measure the scores of an attention whose softmax is not an operation of its own."""
        plain = operation.name.strip("_")
        if plain.startswith(_FUSED) and operation.outputs[0] is tensor:
            self._see_fused(operation, plain, number)
        elif plain == "multi_head_attention_forward" and operation.outputs[0] is tensor:
            self._see_layer(operation, tensor, number)

    def records(
        self, context: ProbeContext, positions: Positions
    ) -> Iterator[LogitRecord | RouterRecord]:
        """Yield the records of measurements whose position in the recording is known."""
        for one in self._logits:
            tensor = reference(positions, one.number)
            if tensor is not None:
                yield LogitRecord(
                    tensor=tensor,
                    kind="output" if one.kind == "output" else "attention",
                    largest=one.largest,
                    log_normaliser=one.log_normaliser,
                    rows=one.rows,
                )
        for choice in self._choices:
            tensor = reference(positions, choice.number)
            if tensor is not None:
                yield RouterRecord(
                    tensor=tensor,
                    chosen=choice.chosen,
                    rows=choice.rows,
                    shares=choice.shares,
                    entropy=choice.entropy,
                )

    def _see_scores(self, operation: Operation, number: NodeNumber) -> None:
        """Measure the scores of a softmax over the last dimension."""
        scores, dim = operation.args[0], operation.args[1] if len(operation.args) > 1 else None
        if not isinstance(scores, Tensor) or not is_readable(scores) or scores.dim() < 3:
            return
        if isinstance(dim, int) and dim % scores.dim() == scores.dim() - 1:
            self._note_scores(scores.detach(), number)

    def _see_fused(self, operation: Operation, plain: str, number: NodeNumber) -> None:
        """Compute the scores of some queries that a fused kernel keeps to itself."""
        tensors = operation.args[:2]
        query, key = tensors if len(tensors) == 2 else (None, None)
        if not (_is_sequence(query) and _is_sequence(key)):
            return
        assert isinstance(query, Tensor) and isinstance(key, Tensor)
        mask = _argument(operation, 3, "attn_mask", plain)
        causal = operation.kwargs.get("is_causal", _causal_of(operation, plain))
        scale = operation.kwargs.get("scale")
        factor = float(scale) if isinstance(scale, int | float) else query.shape[-1] ** -0.5
        # The kernel never stores its scores, so some of them are computed again.
        self._note_scores(_some_scores(query, key, mask, factor, causal=bool(causal)), number)

    def _see_layer(self, operation: Operation, tensor: Tensor, number: NodeNumber) -> None:
        """Compute the scores of `nn.MultiheadAttention`, whose operations are not observed."""
        given = operation.args
        if len(given) < 7 or tensor.dim() != 3:
            return  # without a batch
        query, key, heads, weight, bias = (given[position] for position in (0, 1, 4, 5, 6))
        if not (isinstance(query, Tensor) and isinstance(key, Tensor) and isinstance(heads, int)):
            return
        if not isinstance(weight, Tensor):
            return  # separate weights
        width = query.shape[-1]
        biases = bias.detach()[: 2 * width].chunk(2) if isinstance(bias, Tensor) else (None, None)
        projected_query, projected_key = (
            torch.nn.functional.linear(one.detach(), part, offset)
            .unflatten(-1, (heads, -1))
            .permute(1, 2, 0, 3)
            for one, part, offset in zip(
                (query, key), weight.detach()[: 2 * width].chunk(2), biases, strict=True
            )
        )
        mask = _mask_of_layer(operation, projected_query, projected_key)
        factor = projected_query.shape[-1] ** -0.5
        scores = _some_scores(projected_query, projected_key, mask, factor, causal=False)
        self._note_scores(scores, number)

    def _note_scores(self, scores: Tensor, number: NodeNumber) -> None:
        """Record the largest magnitude by head, of scores `[batch, heads, queries, keys]`."""
        if not scores.numel():
            return
        scores = scores.float()
        # A mask may add a large finite number, so masked scores are found relative to their row.
        row_largest = scores.amax(dim=-1, keepdim=True)
        is_open = (scores - row_largest > MASKED) & scores.isfinite()
        is_broken = scores.isnan() | scores.isposinf()
        magnitudes = torch.where(is_open | is_broken, scores.abs(), 0.0)
        dims = tuple(dim for dim in range(scores.dim()) if scores.dim() != 4 or dim != 1)
        largest = magnitudes.amax(dim=dims).reshape(-1).tolist()
        rows = scores.numel() // max(scores.shape[-1], 1)
        self._logits.append(_Logits(number, "attention", tuple(largest), math.nan, rows))

    def _see_outputs(self, operation: Operation, plain: str, number: NodeNumber) -> None:
        """Measure log Z and the largest magnitude of some rows of outputs."""
        given = argument(operation.args, operation.kwargs, 0, "input")
        if not isinstance(given, Tensor) or not is_readable(given) or given.dim() < 2:
            return
        dim = operation.args[1] if plain == "log_softmax" and len(operation.args) > 1 else 1
        if not isinstance(dim, int):
            return
        # In float32, because a normaliser in half types would have few digits.
        rows = _spaced(given.detach().movedim(dim, -1).flatten(0, -2), 0, _ROWS).float()
        if not rows.numel() or rows.shape[-1] < 2:
            return
        normaliser = float(rows.logsumexp(dim=-1).mean())
        largest = float(rows.abs().amax())
        self._logits.append(_Logits(number, "output", (largest,), normaliser, rows.shape[0]))

    def _see_choices(
        self, operation: Operation, plain: str, tensor: Tensor, number: NodeNumber
    ) -> None:
        """Count how often each of some experts is chosen."""
        scores = argument(operation.args, operation.kwargs, 0, "input")
        if not isinstance(scores, Tensor) or not is_readable(scores) or scores.dim() < 2:
            return
        experts = scores.shape[-1]
        chosen = tensor.shape[-1] if plain == "topk" else 1
        rows = scores.numel() // max(experts, 1)
        is_last = plain == "topk" or tensor.numel() == rows
        if not (1 < experts <= _MOST_EXPERTS and chosen < experts and rows > 1 and is_last):
            return
        table = scores.detach().reshape(-1, experts).float()
        # Computed again, because `tensor` holds the chosen scores and not who was chosen.
        picked = table.topk(chosen, dim=-1).indices.reshape(-1)
        shares = torch.bincount(picked, minlength=experts) / (rows * chosen)
        self._choices.append(
            _Choices(number, chosen, rows, tuple(shares.tolist()), _entropy(table))
        )


def _is_sequence(value: object) -> bool:
    return isinstance(value, Tensor) and is_readable(value) and value.dim() == 4


def _argument(operation: Operation, position: int, name: str, plain: str) -> object:
    """Return the mask of an attention, which fused kernels take at different positions."""
    given = operation.kwargs.get(name, operation.kwargs.get("attn_bias"))
    is_at_position = plain in (f"{_FUSED}attention", f"{_FUSED}attention_math")
    if given is None and (is_at_position or plain.endswith(_WITH_BIAS)):
        given = operation.args[position] if len(operation.args) > position else None
    return given


def _causal_of(operation: Operation, plain: str) -> object:
    """Return the argument `is_causal`, given by position: it follows the dropout probability."""
    after_mask = 5 if plain in (f"{_FUSED}attention", f"{_FUSED}attention_math") else 4
    if plain.endswith(_WITH_BIAS):
        after_mask = 6
    return operation.args[after_mask] if len(operation.args) > after_mask else False


def _mask_of_layer(operation: Operation, query: Tensor, key: Tensor) -> Tensor | None:
    """Return what `nn.MultiheadAttention` adds to the scores `[batch, heads, queries, keys]`."""
    shape = (query.shape[0], query.shape[1], query.shape[2], key.shape[2])
    whole: Tensor | None = None
    for name in ("attn_mask", "key_padding_mask"):
        mask = operation.kwargs.get(name)
        if not isinstance(mask, Tensor):
            continue
        mask = mask.detach()
        if name == "key_padding_mask":
            mask = mask.view(shape[0], 1, 1, -1)
        elif mask.dim() == 3:
            mask = mask.view(shape)
        if mask.dtype == torch.bool:  # here true is what is masked
            mask = torch.zeros(mask.shape, device=mask.device).masked_fill(mask, -math.inf)
        whole = mask if whole is None else whole + mask
    return whole


def _some_scores(
    query: Tensor, key: Tensor, mask: object, factor: float, *, causal: bool
) -> Tensor:
    """Return the scores of some queries `[batch, heads, queries, keys]`, masked as the kernel does.

    Queries may have more heads than keys, which they then share in groups.
    """
    query, key = query.detach(), key.detach()
    examples = _positions(query.shape[0], _EXAMPLES, query.device)
    queries = _positions(query.shape[2], _ROWS, query.device)
    keys = _positions(key.shape[2], _KEYS, key.device)
    shape = (query.shape[0], query.shape[1], query.shape[2], key.shape[2])
    some_queries = query[examples][:, :, queries].float()
    some_keys = key[examples][:, :, keys].float()
    if some_keys.shape[1] != some_queries.shape[1]:
        some_keys = some_keys.repeat_interleave(some_queries.shape[1] // some_keys.shape[1], dim=1)
    scores = some_queries @ some_keys.transpose(-1, -2) * factor
    if causal:
        scores = scores.masked_fill(keys > queries[:, None], -math.inf)
    if isinstance(mask, Tensor):
        part = mask.detach().expand(shape)[examples][:, :, queries][..., keys]
        # True means allowed in the mask of a fused kernel, and masked in that of the layer.
        is_allowed = part.dtype == torch.bool
        scores = scores.masked_fill(~part, -math.inf) if is_allowed else scores + part
    return scores


def _positions(length: int, most: int, device: torch.device) -> Tensor:
    step = -(-length // most) if length else 1
    return torch.arange(0, length, step, device=device)


def _spaced(tensor: Tensor, dim: int, most: int) -> Tensor:
    return tensor.index_select(dim, _positions(tensor.shape[dim], most, tensor.device))


def _entropy(table: Tensor) -> float:
    """Return the mean entropy of the rows over that of a uniform choice: 0 to 1.

    Rows that are not probabilities are taken as logits.
    """
    is_share = bool((table >= 0).all()) and bool(torch.allclose(table.sum(-1), table.new_ones(())))
    shares = table if is_share else table.softmax(-1)
    return float(torch.special.entr(shares).sum(-1).mean()) / math.log(table.shape[-1])
