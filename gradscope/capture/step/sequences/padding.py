"""Observes what a model reads behind the padding of its sequences, and means over padding."""

from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Tensor
from torch._C import DisableTorchFunction

from gradscope.capture.observed_calls import Args, Kwargs, Observer, argument
from gradscope.capture.reading import has_numbers, whole
from gradscope.capture.source.lines import Line
from gradscope.capture.step.graph import Edge, edges, tensors, without_node
from gradscope.capture.step.sequences.tokens import TokenSequences, mask_around, padding_of
from gradscope.capture.tensor_references import TensorNotes

_LOOKUP = "embedding"
_READING = "__getitem__"
_RECURRENT = frozenset({"gru", "lstm", "rnn_relu", "rnn_tanh"})
_MOST_TOKENS = 8
"""Number of tensors of tokens that are kept until the end of a forward."""
_MOST = 32
"""Maximum number of reads that are kept."""
_MOST_POSITIONS = 2
"""Number of positions of a tensor that are read one by one, unless it is a loop over time."""
_LEAST = 4
"""Number of sequences below which the padding of a batch says little."""


_LOSSES = frozenset({"cross_entropy", "nll_loss"})
_REDUCTIONS = frozenset({"mean", "sum"})
_STARTS = _LOSSES | {"gather", "log_softmax"}
_PASSED_ON = frozenset(
    {
        "__add__",
        "__mul__",
        "__neg__",
        "__radd__",
        "__rmul__",
        "__rsub__",
        "__sub__",
        "__truediv__",
        "add",
        "clamp",
        "contiguous",
        "div",
        "flatten",
        "float",
        "masked_fill",
        "mul",
        "neg",
        "reshape",
        "rsub",
        "squeeze",
        "sub",
        "to",
        "view",
        "where",
    }
)
_MOST_MEANS = 16


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
        self._found: list[tuple[ReadBehindPadding, set[int]]] = []
        self._positions = TensorNotes[set[int]]()
        """Positions that are read one by one, by `id` of the tensor."""
        self._padded: list[Tensor] = []
        """Where tokens are padding, by sequence and position, of sequences that end in it."""
        self._final = TensorNotes[Tensor]()
        """By `id` of a recurrent layer's final states: where its sequences are padding."""
        self._looked_up = 0

    @property
    def found(self) -> list[ReadBehindPadding]:
        """Reads of the last position alone. A loop over time reads the others, too."""
        return [read for read, positions in self._found if len(positions) <= _MOST_POSITIONS]

    def wants(self, name: str, args: Args, kwargs: Kwargs) -> bool:
        """Return whether tokens are looked up, or one position of padded sequences is read."""
        if name == _LOOKUP:
            return self._looked_up < _MOST_TOKENS and torch.is_grad_enabled()
        if not self._padded or len(self._found) >= _MOST:
            return False
        return name in _RECURRENT or _position(args) is not None

    def see(self, name: str, args: Args, kwargs: Kwargs, result: object, line: Line | None) -> None:
        """Keep the padding of tokens, and judge what is read."""
        given = kwargs or {}
        with DisableTorchFunction(), torch.no_grad():
            if name == _LOOKUP:
                self._looked_up += 1
                padding = argument(args, given, 2, "padding_idx")
                self._see_tokens(argument(args, given, 0, "input"), padding)
            elif name in _RECURRENT:
                self._see_layer(args, result)
            elif line is not None:
                self._see_read(args, result, line)

    def close(self) -> None:
        """Release the padding."""
        self._found.clear()
        self._positions.clear()
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
            is_read = shape == (sequences, length) and sequences != length
            if is_read and final is None:
                self._note(source, index % length)
            is_last = is_read and index in (-1, length - 1)
            if sequences >= _LEAST and sequences != length and (is_last or final is not None):
                self._keep(padded, source, result, line)
                return

    def _note(self, source: Tensor, position: int) -> None:
        positions = self._positions.of(source)
        if positions is None:
            positions = set()
            self._positions.keep(source, positions)
        positions.add(position)

    def _keep(self, padded: Tensor, source: Tensor, result: Tensor, line: Line) -> None:
        outcome = next(map(without_node, edges(result)), None)
        ends = int(padded[:, -1].sum())
        if outcome is not None and ends:
            share = float(padded.double().mean())
            read = ReadBehindPadding(line, outcome, padded.shape[0], ends, share)
            self._found.append((read, self._positions.of(source) or set()))


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


class PaddedMean(NamedTuple):
    """A sum or mean over positions, some of which are padding."""

    line: Line
    operation: str
    result: Edge
    positions: int
    at_padding: int
    is_masked: bool
    """Whether all terms at padding are 0. Otherwise none is."""


class PaddedMeanObserver(Observer):
    """Follows log-probabilities by position, and losses without a reduction, to their sum.

    Args:
        tokens: The tokens that embeddings look up, which show where padding is.
    """

    names = _STARTS | _PASSED_ON | _REDUCTIONS

    def __init__(self, tokens: TokenSequences) -> None:
        self._tokens = tokens
        self.found: list[PaddedMean] = []
        self._classes = TensorNotes[bool]()
        """Log-probabilities of all classes."""
        self._terms = TensorNotes[Tensor | None]()
        """The classes that are compared there, by `id` of numbers with one for each position."""

    def wants(self, name: str, args: Args, kwargs: Kwargs) -> bool:
        """Return whether a call makes or uses such numbers."""
        if (
            not self._tokens.has_any
            or len(self.found) == _MOST_MEANS
            or not torch.is_grad_enabled()
        ):
            return False
        if name in _STARTS:
            return True
        return any(self._is_term(one) or self._classes.of(one) is not None for one in args)

    def see(self, name: str, args: Args, kwargs: Kwargs, result: object, line: Line | None) -> None:
        """Follow a call that has returned."""
        if not isinstance(result, Tensor) or not result.requires_grad or line is None:
            return
        given = list(tensors(args))
        is_of_classes = any(self._classes.of(one) is not None for one in given)
        terms = [one for one in given if self._is_term(one)]
        if name in _REDUCTIONS and terms:
            self._reduce(name, args, kwargs, terms[0], result, line)
        elif name == "log_softmax":
            self._classes.keep(result, True)
        elif name in _LOSSES or name == "gather" or (name in _REDUCTIONS and is_of_classes):
            if result.ndim and self._tokens.has_positions(result.numel()):
                self._terms.keep(result, _classes(name, args))
        elif terms and result.numel() == terms[0].numel():
            known = (self._terms.of(one) for one in terms)
            self._terms.keep(result, next((one for one in known if one is not None), None))
        elif is_of_classes:
            self._classes.keep(result, True)

    def _is_term(self, value: object) -> bool:
        return id(value) in self._terms and self._terms[id(value)][0]() is value

    def _reduce(
        self, name: str, args: Args, kwargs: Kwargs, terms: Tensor, result: Tensor, line: Line
    ) -> None:
        """Record a sum or mean over terms that are all 0 at padding, or all counted there."""
        edge = next(_edges(result), None)
        with DisableTorchFunction():
            padded = self._tokens.padding_among(terms) if has_numbers(terms) else None
            if padded is None or edge is None or not _is_one_class(self._terms.of(terms), padded):
                return
            there = terms.detach().reshape(padded.shape)[padded]
            zeros = int((there == 0).sum())
        if zeros in (0, there.numel()):
            is_masked = zeros > 0
            self.found.append(PaddedMean(line, name, edge, terms.numel(), there.numel(), is_masked))

    def close(self) -> None:
        """Forget everything."""
        self.found = []
        self._classes.clear()
        self._terms.clear()


def _edges(tensor: Tensor) -> Iterator[Edge]:
    return map(without_node, edges(tensor))


def _classes(name: str, args: Args) -> Tensor | None:
    """Return the classes that a loss, or a choice of log-probabilities, is given."""
    position = 2 if name == "gather" else 1
    found = args[position] if name in _STARTS and len(args) > position else None
    return found if isinstance(found, Tensor) and not found.is_floating_point() else None


def _is_one_class(classes: Tensor | None, padded: Tensor) -> bool:
    """Return whether all targets at padding are of one class, as far as they are known."""
    if classes is None or classes.numel() != padded.numel() or classes.device != padded.device:
        return classes is None
    there = classes.reshape(padded.shape)[padded]
    return bool((there == there[0]).all())
