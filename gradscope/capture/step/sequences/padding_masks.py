"""Observes masks of attention that let it see the padding, and hide the tokens."""

from collections.abc import Mapping
from typing import NamedTuple

import torch
from torch import Tensor
from torch._C import DisableTorchFunction

from gradscope.capture.observed_calls import Args, Kwargs, Observer, argument
from gradscope.capture.reading import has_numbers, whole
from gradscope.capture.source.lines import Line
from gradscope.capture.tensor_references import TensorNotes

_LOOKUP = "embedding"
_ATTENTION = "scaled_dot_product_attention"
_FILLS = frozenset({"masked_fill", "masked_fill_"})
_CHOICE = "where"
_HIDING_CALLS = _FILLS | {_ATTENTION, _CHOICE}
_COMPARING = frozenset(
    {
        *("eq", "ge", "gt", "le", "lt", "ne"),
        *("__eq__", "__ge__", "__gt__", "__le__", "__lt__", "__ne__"),
        *("__invert__", "bitwise_not", "logical_not"),
    }
)
"""Functions that decide what True means."""
_HANDING_ON = frozenset(
    {
        *("__getitem__", "bool", "cat", "expand", "pad", "repeat", "reshape", "squeeze", "to"),
        *("transpose", "unsqueeze", "view"),
    }
)

_HIDING = -1_000.0
"""Score from which on a softmax gives no weight."""
_MOST_TOKENS = 8
"""Number of tensors of tokens that are kept until the end of a forward."""
_MOST_MASKS = 64
"""Number of masks that are judged, and of lines that are kept."""
_MOST_ELEMENTS = 2**26
_MOST_ADDED = 8
"""Number of keys without a token, such as one for the class, before or after the others."""
_LEAST = 8
"""Number of keys of each kind below which a mask may be something else."""
_LEAST_TOKENS = 3
"""Number of different tokens that are hidden."""


class InvertedMask(NamedTuple):
    """A mask of attention whose visible keys are the padding."""

    line: Line | None
    """Line that decided what True means; otherwise that of the attention."""
    used: Line | None
    """Line of the attention."""
    visible: int
    """Number of keys that are visible: all padding."""
    hidden: int
    """Number of tokens that are hidden."""
    token: int
    """Token of the padding."""


class PaddingMaskObserver(Observer):
    """Compares masks of attention with the tokens that embeddings have looked up."""

    names = _COMPARING | _HANDING_ON | _HIDING_CALLS | {_LOOKUP}

    def __init__(self) -> None:
        self.inverted: list[InvertedMask] = []
        self._tokens: list[Tensor] = []
        self._lines = TensorNotes[Line]()
        """By `id` of a mask: the line that decided what True means."""
        self._judged = 0

    def wants(self, name: str, args: Args, kwargs: Kwargs) -> bool:
        """Return whether tokens are looked up, or a mask is made or used."""
        first = _first(args)
        if name == _LOOKUP:
            return len(self._tokens) < _MOST_TOKENS
        if name in _HIDING_CALLS:
            return bool(self._tokens) and self._judged < _MOST_MASKS
        if len(self._lines) >= _MOST_MASKS or first is None or first.ndim < 2:
            return False
        is_mask = first.dtype == torch.bool
        return is_mask or (name in _COMPARING and not first.is_floating_point())

    def see(self, name: str, args: Args, kwargs: Kwargs, result: object, line: Line | None) -> None:
        """Keep tokens and the lines of masks, and judge a mask that is used."""
        given = kwargs or {}
        with DisableTorchFunction(), torch.no_grad():
            if name == _LOOKUP:
                tokens = argument(args, given, 0, "input")
                if isinstance(tokens, Tensor) and not tokens.is_nested and tokens.ndim == 2:
                    self._tokens.append(tokens)
            elif name in _HIDING_CALLS:
                mask, visible = _visible(name, args, given)
                if mask is not None and visible is not None:
                    self._judge(mask, visible, line)
            elif isinstance(result, Tensor) and result.dtype == torch.bool:
                self._keep(name, _first(args), result, line)

    def close(self) -> None:
        """Release the tokens."""
        self.inverted.clear()
        self._tokens.clear()
        self._lines.clear()

    def _keep(self, name: str, given: Tensor | None, result: Tensor, line: Line | None) -> None:
        made = line if name in _COMPARING or given is None else self._lines.of(given)
        if made is not None:
            self._lines.keep(result, made)

    def _judge(self, mask: Tensor, visible: Tensor, line: Line | None) -> None:
        self._judged += 1
        keys = visible.flatten(1, -2).any(1) if visible.ndim > 2 else visible
        for one in self._tokens:
            tokens = whole(one)
            if tokens is None or tokens.device != keys.device:
                continue
            # Models may have the positions first.
            for ordered in (tokens, tokens.T):
                found = _inverted(keys, ordered)
                if found is not None:
                    made = self._lines.of(mask) or line
                    self.inverted.append(InvertedMask(made, line, *found))
                    return


def _first(args: Args) -> Tensor | None:
    given = args[0] if args else None
    if isinstance(given, list | tuple):
        given = given[-1] if given else None
    return given if isinstance(given, Tensor) and not given.is_nested else None


def _visible(
    name: str, args: Args, given: Mapping[str, object]
) -> tuple[Tensor | None, Tensor | None]:
    """Return a mask as it was given, and where it lets attention see."""
    if name == _ATTENTION:
        mask = argument(args, given, 3, "attn_mask")
        is_mask = isinstance(mask, Tensor) and _is_judged(mask)
        if not is_mask or not isinstance(mask, Tensor):
            return None, None
        return mask, mask if mask.dtype == torch.bool else mask > _HIDING
    if name == _CHOICE:
        mask, filled = args[0] if args else None, args[2] if len(args) > 2 else None
    else:
        mask = argument(args, given, 1, "mask")
        filled = argument(args, given, 2, "value")
    if not isinstance(mask, Tensor) or mask.dtype != torch.bool or not _is_judged(mask):
        return None, None
    if isinstance(filled, bool) or not isinstance(filled, int | float) or filled > _HIDING:
        return None, None
    return mask, mask if name == _CHOICE else ~mask


def _is_judged(mask: Tensor) -> bool:
    return has_numbers(mask) and mask.ndim >= 2 and 0 < mask.numel() <= _MOST_ELEMENTS


def _inverted(keys: Tensor, tokens: Tensor) -> tuple[int, int, int] | None:
    """Return visible keys, hidden tokens and the padding, None if a mask is not inverted.

    All visible keys are then the same token, which begins or ends sequences of different lengths
    and is nowhere else, and all other tokens are hidden.
    """
    rows, length = tokens.shape
    added = keys.shape[1] - length
    if keys.shape[0] != rows or not 0 <= added <= _MOST_ADDED or not length:
        return None
    # The keys without a token come before the others, or after them.
    for seen in {added, 0}:
        visible = keys[:, seen : seen + length]
        padding, hidden = tokens[visible], tokens[~visible]
        if len(padding) < _LEAST or len(hidden) < _LEAST:
            continue
        order = visible.int().diff(dim=1)
        is_edge = bool((order >= 0).all()) or bool((order <= 0).all())
        is_padding = bool((padding == padding[0]).all()) and not bool((hidden == padding[0]).any())
        if (
            is_edge
            and is_padding
            and len(visible.sum(1).unique()) > 1
            and len(hidden.unique()) >= _LEAST_TOKENS
        ):
            return len(padding), len(hidden), int(padding[0])
    return None
