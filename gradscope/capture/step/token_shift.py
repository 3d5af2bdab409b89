"""Tells how many positions the targets of a language model run ahead of its tokens."""

from torch import Tensor
from torch._C import DisableTorchFunction

from gradscope.capture.reading import whole

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


class TokenSequences:
    """The tokens that embeddings have looked up in a forward."""

    def __init__(self) -> None:
        self._seen: list[Tensor] = []

    @property
    def is_full(self) -> bool:
        """Whether no more tokens are kept."""
        return len(self._seen) == _MOST_SEEN

    def add(self, tokens: object) -> None:
        """Keep the tokens of a batch of sequences."""
        with DisableTorchFunction():
            if isinstance(tokens, Tensor) and not tokens.is_nested and tokens.ndim == 2:
                self._seen.append(tokens)

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
            found = (_ahead(tokens, classes, ignored) for tokens in map(whole, self._seen))
            return next((one for one in found if one is not None), None)

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
