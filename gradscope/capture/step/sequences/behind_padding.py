"""Observes what a model reads of its sequences behind their padding."""

from typing import NamedTuple

import torch
from torch import Tensor
from torch._C import DisableTorchFunction

from gradscope.capture.observed_calls import Args, Kwargs, Observer
from gradscope.capture.reading import whole
from gradscope.capture.source.lines import Line
from gradscope.capture.step.graph import Edge, edges, without_node
from gradscope.capture.step.sequences.tokens import mask_around, padding_of
from gradscope.capture.tensor_references import TensorNotes

_LOOKUP = "embedding"
_READING = "__getitem__"
_RECURRENT = frozenset({"gru", "lstm", "rnn_relu", "rnn_tanh"})
_MOST_TOKENS = 8
"""Number of tensors of tokens that are kept until the end of a forward."""
_MOST = 32
"""Maximum number of reads that are kept."""
_LEAST = 4
"""Number of sequences below which the padding of a batch says little."""


class ReadBehindPadding(NamedTuple):
    """A read of one position of every sequence that is padding in some of them."""

    line: Line
    result: Edge
    sequences: int
    padded: int
    """Number of sequences that end in padding."""
    share: float
    """Mean share of a sequence, 0 to 1, that is padding."""


class BehindPaddingObserver(Observer):
    """Compares what is read of a tensor by sequence and position with the padding of the tokens."""

    names = _RECURRENT | {_LOOKUP, _READING}

    def __init__(self) -> None:
        self.found: list[ReadBehindPadding] = []
        self._padded: list[Tensor] = []
        """Where tokens are padding, by sequence and position, of sequences that end in it."""
        self._final = TensorNotes[Tensor]()
        """By `id` of a recurrent layer's final states: where its sequences are padding."""
        self._looked_up = 0

    def wants(self, name: str, args: Args, kwargs: Kwargs) -> bool:
        """Return whether tokens are looked up, or one position of padded sequences is read."""
        if name == _LOOKUP:
            return self._looked_up < _MOST_TOKENS and torch.is_grad_enabled()
        if not self._padded or len(self.found) >= _MOST:
            return False
        return name in _RECURRENT or _position(args) is not None

    def see(self, name: str, args: Args, kwargs: Kwargs, result: object, line: Line | None) -> None:
        """Keep the padding of tokens, and judge what is read."""
        given = kwargs or {}
        with DisableTorchFunction(), torch.no_grad():
            if name == _LOOKUP:
                self._looked_up += 1
                padding = args[2] if len(args) > 2 else given.get("padding_idx")
                self._see_tokens(args[0] if args else given.get("input"), padding)
            elif name in _RECURRENT:
                self._see_layer(args, result)
            elif line is not None:
                self._see_read(args, result, line)

    def close(self) -> None:
        """Release the padding."""
        self.found.clear()
        self._padded.clear()
        self._final.clear()

    def _see_tokens(self, tokens: object, padding: object) -> None:
        read = whole(tokens) if isinstance(tokens, Tensor) and tokens.ndim == 2 else None
        if not isinstance(tokens, Tensor) or read is None or not read.numel():
            return
        fixed = padding if isinstance(padding, int) and padding >= 0 else None
        found = padding_of(read, fixed, mask_around(tokens))
        if found is None:
            return
        by_sequence = found if bool(found[:, -1].any()) and not bool(found[-1].all()) else found.T
        # The mask of a model may mark padding at the start, where the last token is none.
        if bool(by_sequence[:, -1].any()) and not bool(by_sequence[:, 0].any()):
            self._padded.append(by_sequence)

    def _see_layer(self, args: Args, result: object) -> None:
        """Keep the final states of a layer that gets padded sequences, not packed ones."""
        states = args[0] if args else None
        if not isinstance(states, Tensor) or states.ndim != 3 or not isinstance(result, tuple):
            return
        for padded in self._padded:
            if padded.shape in (states.shape[:2], (states.shape[1], states.shape[0])):
                for final in result[1:2]:
                    self._final.keep(final, padded)

    def _see_read(self, args: Args, result: object, line: Line) -> None:
        source, position = args[0], _position(args)
        if not isinstance(source, Tensor) or not isinstance(result, Tensor) or position is None:
            return
        final = self._final.of(source)
        for padded in self._padded if final is None else (final,):
            sequences, length = padded.shape
            dimension, index = position
            shape = source.shape[:2] if dimension == 1 else (source.shape[1], source.shape[0])
            is_last = shape == (sequences, length) and index in (-1, length - 1)
            if sequences >= _LEAST and sequences != length and (is_last or final is not None):
                self._keep(padded, result, line)
                return

    def _keep(self, padded: Tensor, result: Tensor, line: Line) -> None:
        outcome = next(map(without_node, edges(result)), None)
        ends = int(padded[:, -1].sum())
        if outcome is not None and ends:
            share = float(padded.double().mean())
            self.found.append(ReadBehindPadding(line, outcome, padded.shape[0], ends, share))


def _position(args: Args) -> tuple[int, int] | None:
    """Return the dimension and the index of a read of one position; None for any other read."""
    if len(args) != 2 or not isinstance(args[0], Tensor) or args[0].ndim < 3:
        return None
    source, index = args
    if not isinstance(source, Tensor) or not source.requires_grad:
        return None
    if isinstance(index, int) and not isinstance(index, bool):
        return 0, index
    if not isinstance(index, tuple) or len(index) < 2 or not all(_is_whole(i) for i in index[2:]):
        return None
    first, second = index[:2]
    if _is_whole(first) and isinstance(second, int):
        return 1, second
    return (0, first) if isinstance(first, int) and _is_whole(second) else None


def _is_whole(index: object) -> bool:
    return index is ... or (isinstance(index, slice) and index == slice(None))
