"""Compares the targets of a language model with the tokens that it looks up, and their padding."""

import sys
from typing import NamedTuple

import torch
from torch import Tensor
from torch._C import DisableTorchFunction

from gradscope.capture.reading import whole

_MASKS = ("attention_mask", "decoder_attention_mask")
"""Arguments of models that are 0 at padding."""
_MOST_FRAMES = 20
"""Number of calls around a lookup of tokens in which a mask is searched for."""
_LEAST_AT_PADDING = 16
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
            # Reading `f_locals` builds a dictionary: first whether there is such a variable at all.
            if name in frame.f_code.co_varnames:
                mask = frame.f_locals.get(name)
                if isinstance(mask, Tensor) and mask.shape == tokens.shape:
                    return mask
        if frame is None or frame.f_back is None:
            return None
        frame = frame.f_back
    return None


def padding_of(
    tokens: Tensor, padding: int | None, mask: Tensor | None, *, at_start: bool = False
) -> Tensor | None:
    """Return where tokens are padding, None if there is none or it is unknown.

    Args:
        tokens: A batch of sequences, either dimension first.
        padding: The token that its embedding does not learn, which has to end the sequences.
        mask: 0 at padding; None if there is no mask.
        at_start: Whether it may begin them as well, as that of histories of users does.
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
        # Padding that ends a sequence is an unbroken run from its end.
        ends = found.flip(dimension).long().cumprod(dimension).flip(dimension).bool()
        # The first token may be the same one: some decoders begin with it.
        if bool((ends == found).narrow(dimension, 1, tokens.shape[dimension] - 1).all()):
            return ends
    return _at_start(found) if at_start else None


def _at_start(found: Tensor) -> Tensor | None:
    for dimension in (1, 0):
        starts = found.long().cumprod(dimension).bool()
        # A decoder may begin with this token: padding is longer somewhere.
        is_longer = bool(starts.narrow(dimension, 1, found.shape[dimension] - 1).any())
        if is_longer and bool((starts == found).all()) and not bool(found.all(dimension).any()):
            return found
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
        # Of padding at the start, the last position has the first token for its target.
        padded = padded[:, 1:] if bool(padded[:, 0].any()) else padded[:, :-1]
    classes = classes.reshape(padded.shape)
    # Models may set their own `ignore_index`, and mark targets by torch's default as well.
    counts = (classes != ignored) & (classes != _IGNORED)
    there = classes[padded & counts]
    if there.numel() < _LEAST_AT_PADDING:
        return None
    label = int(there[0])  # a target of two classes is 0.0 or 1.0
    if not bool((there == label).all()) or _is_weightless(weight, label):
        return None
    return PaddedTargets(int(counts.sum()), there.numel(), label)


def _is_weightless(weight: Tensor | None, label: int) -> bool:
    if weight is None:
        return False
    with torch.no_grad():
        return 0 <= label < weight.numel() and float(weight.reshape(-1)[label]) == 0


_MOST_SEEN = 8
"""Number of tensors of tokens that are kept until the end of a forward."""
MOST_ROWS = 8
"""Number of sequences that are compared."""
_LEAST = 16
"""Number of targets below which an agreement may be chance."""
_FARTHEST = 3
"""Largest number of positions that is looked for."""
_CHANCE = 0.5
"""Share of equal tokens above which another number of positions fits as well."""


class _Tokens(NamedTuple):
    """Tokens that an embedding has looked up."""

    tokens: Tensor
    padding: int | None
    """The token that the embedding does not learn."""
    mask: Tensor | None
    """The model's mask: 0 at padding."""


class TokenSequences:
    """The tokens that embeddings have looked up in a forward."""

    def __init__(self) -> None:
        self._seen: list[_Tokens] = []

    @property
    def is_full(self) -> bool:
        """Whether no more tokens are kept."""
        return len(self._seen) == _MOST_SEEN

    def add(self, tokens: object, padding: object) -> None:
        """Keep the tokens of a batch of sequences, and the one of which the embedding is fixed."""
        with DisableTorchFunction():
            if isinstance(tokens, Tensor) and not tokens.is_nested and tokens.ndim == 2:
                fixed = padding if isinstance(padding, int) else None
                self._seen.append(_Tokens(tokens, fixed, mask_around(tokens)))

    def ahead(self, target: Tensor, ignored: int) -> int | None:
        """Return by how many positions a target is shifted against the tokens of its model.

        0 if it is the tokens themselves, 1 if it is the next ones. None if it is not equal to the
        tokens of one shift alone, or to those of a larger shift that the script may have meant.

        Args:
            target: Classes, by sequence and position, perhaps flattened.
            ignored: The class that does not count.
        """
        classes = whole(target) if self._seen else None
        with DisableTorchFunction():
            if classes is None or classes.is_floating_point():
                return None
            for one in self._seen:
                tokens = whole(one.tokens)
                found = None if tokens is None else tokens_ahead(tokens, classes, ignored)
                # Without a mark of a loss that shifts, a task may be to predict what comes later.
                if found is not None and (found.is_shifted or found.positions <= 1):
                    return found.positions
            return None

    def at_padding(
        self, target: Tensor, ignored: int, weight: Tensor | None, *, are_shares: bool = False
    ) -> PaddedTargets | None:
        """Return how many targets are at padding of the tokens; None if none is, or it is unknown.

        Args:
            target: Classes, by sequence and position, perhaps flattened.
            ignored: The class that does not count.
            weight: Weights of the classes; None if all have the same.
            are_shares: Whether the target is 0 or 1 in floating point.
        """
        classes = whole(target) if self._seen else None
        with DisableTorchFunction():
            if classes is None or classes.is_floating_point() is not are_shares:
                return None
            for one in reversed(self._seen):  # a decoder's come last
                tokens = whole(one.tokens)
                if tokens is None or tokens.device != classes.device or not tokens.numel():
                    continue
                padded = padding_of(tokens, one.padding, one.mask, at_start=True)
                found = padded if padded is None or padded.device == classes.device else None
                if found is not None:
                    return targets_at_padding(found, classes, ignored, weight)
        return None

    @property
    def has_any(self) -> bool:
        """Whether an embedding has looked up sequences."""
        return bool(self._seen)

    def has_positions(self, count: int) -> bool:
        """Return whether a tensor of so many elements may have one for each position."""
        for one in self._seen:
            rows, length = one.tokens.shape
            if count in (rows * length, rows * (length - 1)):
                return True
        return False

    def padding_among(self, terms: Tensor) -> Tensor | None:
        """Return which of several terms are at padding, by sequence; None if it is unknown.

        Args:
            terms: One for each position, or one less for each sequence; perhaps flattened.
        """
        for one in reversed(self._seen):
            tokens = whole(one.tokens)
            if tokens is None or tokens.device != terms.device or not tokens.numel():
                continue
            rows, length = tokens.shape
            is_shifted = terms.numel() == rows * (length - 1)
            if not is_shifted and terms.numel() != tokens.numel():
                continue
            if one.padding is None and one.mask is None:
                continue  # of positions, or segments
            padded = padding_of(tokens, one.padding, one.mask, at_start=True)
            if padded is None or padded.device != terms.device:
                return None  # a decoder's come last
            if is_shifted:  # the target is the next token
                padded = padded[:, 1:]
            is_enough = int(padded.sum()) >= _LEAST_AT_PADDING
            return padded if is_enough else None
        return None

    def clear(self) -> None:
        """Release the tokens."""
        self._seen.clear()


class Ahead(NamedTuple):
    """Targets that are tokens of their model."""

    positions: int
    """Number of positions by which they run ahead of the tokens."""
    counts: Tensor
    """By sequence and position: whether the target counts. Some sequences only."""
    length: int
    """Number of positions of a sequence of tokens."""
    is_shifted: bool
    """Whether nothing counts at the last position, which is what a loss leaves that shifts."""


def tokens_ahead(
    tokens: Tensor, classes: Tensor, ignored: int, *, cut: bool = False
) -> Ahead | None:
    """Return by how many positions targets run ahead of tokens; None if no shift alone fits.

    Args:
        tokens: Sequences of tokens, either dimension first.
        classes: The targets, in the same order, perhaps flattened.
        ignored: The class that does not count.
        cut: Also accept one target less than tokens for each sequence: the next token of each.
    """
    if tokens.device != classes.device or not tokens.numel():
        return None
    first, second = tokens.shape
    for length, rows in ((second, first), (first, second)):
        is_first, is_whole = length == second, classes.numel() == tokens.numel()
        own = tokens if is_first else tokens.T
        if is_whole:
            targets = classes.reshape(tokens.shape)
            targets = targets if is_first else targets.T
        elif cut and classes.numel() == rows * (length - 1):
            shape = (rows, length - 1) if is_first else (length - 1, rows)
            targets = classes.reshape(shape) if is_first else classes.reshape(shape).T
            targets = torch.cat((targets, torch.full_like(own[:, :1], ignored)), 1)
        else:  # it is unknown to which outputs they belong
            continue
        found = _ahead(own[:MOST_ROWS], targets[:MOST_ROWS], ignored)
        # Of one target less than tokens, outputs may belong to the first or to the last positions.
        if found is not None and (found.positions == 1 or (is_whole and is_first)):
            return found
    return None


def _ahead(tokens: Tensor, classes: Tensor, ignored: int) -> Ahead | None:
    shares = [_share_equal(tokens, classes, shift, ignored) for shift in range(_FARTHEST + 1)]
    likely = [shift for shift, share in enumerate(shares) if share > _CHANCE]
    if len(likely) != 1 or shares[likely[0]] < 1:
        return None
    counts = classes != ignored
    is_shifted = not bool(counts[:, -1].any())
    return Ahead(likely[0], counts, tokens.shape[1], is_shifted)


def _share_equal(tokens: Tensor, classes: Tensor, shift: int, ignored: int) -> float:
    """Return the share of targets that are equal to the token so many positions later."""
    later = tokens[:, shift:]
    own = classes[:, : later.shape[1]]
    counts = own != ignored
    judged = int(counts.sum())
    return int(((own == later) & counts).sum()) / judged if judged >= _LEAST else 0.0
