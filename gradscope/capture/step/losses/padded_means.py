"""Finds sums and means by hand over the positions of padded sequences."""

from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Tensor
from torch._C import DisableTorchFunction

from gradscope.capture.observed_calls import Args, Kwargs, Observer
from gradscope.capture.reading import has_numbers
from gradscope.capture.source.lines import Line
from gradscope.capture.step.graph import Edge, edges, tensors, without_node
from gradscope.capture.step.sequences.tokens import TokenSequences
from gradscope.capture.tensor_references import TensorNotes

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
_MOST = 16


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
        if not self._tokens.has_any or len(self.found) == _MOST or not torch.is_grad_enabled():
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
