"""Tells which targets of a loss are at positions that only pad a batch of sequences."""

import sys
from typing import NamedTuple

import torch
from torch import Tensor

_MASKS = ("attention_mask", "decoder_attention_mask")
"""Arguments of models that are 0 at padding."""
_MOST_FRAMES = 20
"""Number of calls around a lookup of tokens in which a mask is searched for."""
_LEAST = 16
"""Number of targets at padding below which they may be something else."""
_IGNORED = -100


class PaddedTargets(NamedTuple):
    """The targets of a loss that count."""

    counted: int
    at_padding: int
    """Number of them at padding, where all of them are of the same class."""
    label: int
    """The class."""


def mask_around(tokens: Tensor) -> Tensor | None:
    """Return the mask of the model that is looking up tokens: 0 at padding, 1 elsewhere."""
    frame = sys._getframe(2)
    for _ in range(_MOST_FRAMES):
        for name in _MASKS if frame is not None else ():
            if name in frame.f_code.co_varnames:
                mask = frame.f_locals.get(name)
                if isinstance(mask, Tensor) and mask.shape == tokens.shape:
                    return mask
        if frame is None or frame.f_back is None:
            return None
        frame = frame.f_back
    return None


def padding_of(tokens: Tensor, padding: int | None, mask: Tensor | None) -> Tensor | None:
    """Return where tokens are padding, None if there is none or it is unknown.

    Args:
        tokens: A batch of sequences, either dimension first.
        padding: The token that its embedding does not learn, which has to end the sequences.
        mask: 0 at padding; None if there is no mask.
    """
    if mask is not None and not mask.is_floating_point():
        found = mask == 0
        return found if bool(found.any()) and not bool(found.all()) else None
    if padding is None:
        return None
    found = tokens == padding
    if not bool(found.any()) or bool(found.all()):
        return None
    for dimension in (1, 0):
        if bool(found.all(dimension).any()):
            continue  # a whole sequence of it, which is no end
        ends = found.flip(dimension).long().cumprod(dimension).flip(dimension).bool()
        # The first token may be the same one: some decoders begin with it.
        if bool((ends == found).narrow(dimension, 1, tokens.shape[dimension] - 1).all()):
            return ends
    return None


def targets_at_padding(
    padded: Tensor, classes: Tensor, ignored: int, weight: Tensor | None
) -> PaddedTargets | None:
    """Return how many targets are at padding; None if these are not all of one class.

    Args:
        padded: Where tokens are padding, by sequence and position.
        classes: Targets of as many positions, or of one less per sequence; perhaps flattened.
        ignored: Class that does not count.
        weight: Weights of the classes.
    """
    rows, length = padded.shape
    if classes.numel() != padded.numel():
        if classes.numel() != rows * (length - 1):
            return None
        padded = padded[:, :-1]
    classes = classes.reshape(padded.shape)
    counts = (classes != ignored) & (classes != _IGNORED)
    there = classes[padded & counts]
    if there.numel() < _LEAST:
        return None
    label = int(there[0])
    if not bool((there == label).all()) or _is_weightless(weight, label):
        return None
    return PaddedTargets(int(counts.sum()), there.numel(), label)


def _is_weightless(weight: Tensor | None, label: int) -> bool:
    if weight is None:
        return False
    with torch.no_grad():
        return 0 <= label < weight.numel() and float(weight.reshape(-1)[label]) == 0
