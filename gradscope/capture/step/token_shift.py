"""Compares the targets of a language model with the tokens that it looks up."""

from typing import NamedTuple

from torch import Tensor
from torch._C import DisableTorchFunction

from gradscope.capture.reading import whole
from gradscope.capture.step.token_padding import (
    PaddedTargets,
    mask_around,
    padding_of,
    targets_at_padding,
)

_MOST_SEEN = 8
"""Number of tensors of tokens that are kept until the end of a forward."""
_MOST_ROWS = 8
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
            found = (_ahead(whole(one.tokens), classes, ignored) for one in self._seen)
            return next((one for one in found if one is not None), None)

    def at_padding(
        self, target: Tensor, ignored: int, weight: Tensor | None
    ) -> PaddedTargets | None:
        """Return how many targets are at padding of the tokens; None if none is, or it is unknown.

        Args:
            target: Classes, by sequence and position, perhaps flattened.
            ignored: The class that does not count.
            weight: Weights of the classes; None if all have the same.
        """
        classes = whole(target) if self._seen else None
        with DisableTorchFunction():
            if classes is None or classes.is_floating_point():
                return None
            for one in reversed(self._seen):  # a decoder's come last
                tokens = whole(one.tokens)
                if tokens is None or tokens.device != classes.device or not tokens.numel():
                    continue
                padded = padding_of(tokens, one.padding, one.mask)
                found = padded if padded is None or padded.device == classes.device else None
                if found is not None:
                    return targets_at_padding(found, classes, ignored, weight)
        return None

    def clear(self) -> None:
        """Release the tokens."""
        self._seen.clear()


def _ahead(tokens: Tensor | None, classes: Tensor, ignored: int) -> int | None:
    if tokens is None or tokens.device != classes.device or not tokens.numel():
        return None
    rows, length = tokens.shape
    # With fewer targets than tokens, it is unknown to which outputs they belong.
    if classes.numel() != rows * length:
        return None
    tokens, classes = tokens[:_MOST_ROWS], classes.reshape(rows, length)[:_MOST_ROWS]
    shares = [_share_equal(tokens, classes, shift, ignored) for shift in range(_FARTHEST + 1)]
    likely = [shift for shift, share in enumerate(shares) if share > _CHANCE]
    if len(likely) != 1 or shares[likely[0]] < 1:
        return None
    # A loss that shifts by itself has no classes for the last position. Without this mark, a task
    # may be to predict what comes later.
    is_shifted = bool((classes[:, -1] == ignored).all())
    return likely[0] if is_shifted or likely[0] <= 1 else None


def _share_equal(tokens: Tensor, classes: Tensor, shift: int, ignored: int) -> float:
    """Return the share of targets that are equal to the token so many positions later."""
    later = tokens[:, shift:]
    own = classes[:, : later.shape[1]]
    counts = own != ignored
    judged = int(counts.sum())
    return int(((own == later) & counts).sum()) / judged if judged >= _LEAST else 0.0
