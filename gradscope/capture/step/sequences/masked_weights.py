"""Observes masks of attention that leave weight on the positions that they should hide."""

from collections.abc import Mapping
from typing import NamedTuple

import torch
from torch import Tensor
from torch._C import DisableTorchFunction

from gradscope.capture.observed_calls import Args, Kwargs, Observer, argument
from gradscope.capture.reading import has_numbers
from gradscope.capture.source.lines import Line
from gradscope.capture.tensor_references import TensorNotes

_FILLS = frozenset({"masked_fill", "masked_fill_"})
_PRODUCTS = frozenset({"mul", "mul_", "multiply"})
_SUMS = frozenset({"add", "add_"})
_SOFTMAX = "softmax"
_ATTENTION = frozenset({"multi_head_attention_forward", "scaled_dot_product_attention"})
_ADDED = ("attn_mask", "key_padding_mask")
"""Masks of attention: numbers among them are added to the scores."""
_MOST = 100
"""Maximum number of masks that are judged."""
_MOST_ELEMENTS = 2**24
_LEAST_HIDDEN = 3
"""Number of positions below which a mask may be something else."""
_LEAST_WEIGHT = 0.01
"""Mean weight of the hidden positions below which they count as hidden."""


class MaskedWeights(NamedTuple):
    """Weights of attention on positions that a mask should hide."""

    line: Line
    """Line of the mask."""
    softmax: Line
    way: str
    """How the mask meets the scores: `fill`, `product` or `sum`."""
    weight: float | None
    """Mean of the weight, 0 to 1, that a softmax gives them, over the rows that hide some. None
    for fused attention."""
    filled: float
    """Score that the mask gives them, or adds."""


class _Mask(NamedTuple):
    hidden: Tensor
    line: Line
    way: str
    filled: float


class MaskedWeightObserver(Observer):
    """Adds up what a softmax gives to positions that are masked before it."""

    names = _FILLS | _PRODUCTS | _SUMS | _ATTENTION | {_SOFTMAX}

    def __init__(self) -> None:
        self.found: list[MaskedWeights] = []
        self._masked = TensorNotes[_Mask]()
        """By `id` of masked scores."""
        self._judged = 0

    def wants(self, name: str, args: Args, kwargs: Kwargs) -> bool:
        """Return whether a mask meets scores, or a softmax such scores."""
        if self._judged >= _MOST or not torch.is_grad_enabled():
            return False
        if name == _SOFTMAX or name in _ATTENTION:
            return bool(args) and isinstance(args[0], Tensor) and args[0].ndim > 2
        return _mask_of(name, args, kwargs or {}) is not None

    def see(self, name: str, args: Args, kwargs: Kwargs, result: object, line: Line | None) -> None:
        """Keep masked scores, and judge the softmax that they meet."""
        if line is None:
            return
        given = kwargs or {}
        with DisableTorchFunction(), torch.no_grad():
            if name in _ATTENTION:
                self._see_attention(args, given, line)
            elif not isinstance(result, Tensor) or not has_numbers(result):
                return
            elif name == _SOFTMAX:
                self._see_softmax(args, given, result, line)
            elif (mask := _mask_of(name, args, given)) is not None:
                known = _known_mask(name, mask, args, given, line)
                if known is not None:
                    self._masked.keep(result, known)

    def close(self) -> None:
        """Release the masks."""
        self.found.clear()
        self._masked.clear()

    def _see_softmax(
        self, args: Args, given: Mapping[str, object], result: Tensor, line: Line
    ) -> None:
        dimension = argument(args, given, 1, "dim")
        if dimension not in (-1, result.ndim - 1):
            return
        known = self._masked.of(args[0])
        if known is None:
            return
        self._judged += 1
        if result.numel() > _MOST_ELEMENTS or not _has_blocks(known.hidden):
            return
        hidden = known.hidden.expand(result.shape)
        partly = hidden.any(-1) & ~hidden.all(-1)
        weight = float((result.detach().float() * hidden).sum(-1)[partly].mean())
        if weight > _LEAST_WEIGHT:
            self.found.append(MaskedWeights(known.line, line, known.way, weight, known.filled))

    def _see_attention(self, args: Args, given: Mapping[str, object], line: Line) -> None:
        # A fourth argument of torch's fused attention; its layers pass masks by name.
        masks = [*args[3:4], *(given.get(name) for name in _ADDED)]
        self._judged += 1
        for mask in masks:
            if not isinstance(mask, Tensor) or not mask.is_floating_point() or mask.requires_grad:
                continue
            if _is_switch(mask) and _has_blocks(mask == 0):
                self.found.append(MaskedWeights(line, line, "sum", None, 1.0))


def _known_mask(
    name: str, mask: Tensor, args: Args, given: Mapping[str, object], line: Line
) -> _Mask | None:
    """Return what a mask hides, and how; None for a tensor that is no mask."""
    if name in _FILLS:
        value = argument(args, given, 2, "value")
        return _Mask(mask, line, "fill", float(value))  # type: ignore[arg-type]
    if not _is_switch(mask):
        return None
    if name in _PRODUCTS:
        return _Mask(mask == 0, line, "product", 0.0)
    return _Mask(_later(mask), line, "sum", 1.0)


def _mask_of(name: str, args: Args, given: Mapping[str, object]) -> Tensor | None:
    """Return what may be a mask of the scores of attention: a smaller constant.

    One of the same shape may follow from the scores themselves, as that of a router's best experts
    does.
    """
    first = args[0] if args else None
    second = argument(args, given, 1, "mask")
    pairs = [(first, second)] if name in _FILLS else [(first, second), (second, first)]
    for scores, mask in pairs:
        if not isinstance(scores, Tensor) or not isinstance(mask, Tensor):
            continue
        if not scores.requires_grad or scores.ndim < 3 or not scores.is_floating_point():
            continue
        if mask.requires_grad or not 1 < mask.numel() < scores.numel() or not has_numbers(mask):
            continue
        if mask.shape[-1:] != scores.shape[-1:] or mask.ndim > scores.ndim:
            continue
        is_bool = mask.dtype == torch.bool
        return mask if name not in _FILLS or (is_bool and _is_mild(args, given)) else None
    return None


def _is_mild(args: Args, given: Mapping[str, object]) -> bool:
    """Return whether a fill is a number that a softmax gives weight to."""
    value = argument(args, given, 2, "value")
    return isinstance(value, int | float) and value > -1_000


def _is_switch(mask: Tensor) -> bool:
    """Return whether a tensor consists of zeros and ones."""
    if mask.numel() > _MOST_ELEMENTS or not has_numbers(mask) or mask.is_complex():
        return False
    ones, zeros = int((mask == 1).sum()), int((mask == 0).sum())
    return bool(ones and zeros) and ones + zeros == mask.numel()


def _later(mask: Tensor) -> Tensor:
    """Return what a mask hides that is added: the later positions, otherwise its zeros."""
    is_square = mask.ndim > 1 and mask.shape[-1] == mask.shape[-2]
    return mask == 1 if is_square and bool(mask[..., 0, -1].any()) else mask == 0


def _has_blocks(hidden: Tensor) -> bool:
    """Return whether some rows hide one of their ends: what follows a token, or the padding."""
    partly = hidden.any(-1) & ~hidden.all(-1)
    changes = hidden.to(torch.int8).diff(dim=-1).abs().sum(-1)
    is_long = int(hidden.sum(-1).max()) >= _LEAST_HIDDEN
    return is_long and bool(partly.any()) and not bool((changes > 1).any())
