"""Observes losses of pairs and margins whose labels do not fit: own similarities, labels of 0."""

from collections.abc import Mapping
from typing import NamedTuple

import torch
from torch import Tensor

from gradscope.capture.observed_calls import Args, Kwargs, Observer, argument
from gradscope.capture.reading import has_numbers
from gradscope.capture.source.lines import Line
from gradscope.capture.tensor_references import TensorNotes

_MARGIN_LOSSES = {
    "cosine_embedding_loss": 2,
    "hinge_embedding_loss": 1,
    "margin_ranking_loss": 2,
    "soft_margin_loss": 1,
}
"""Functions of labels that are 1 and -1, with the position of the labels."""
_CROSS_ENTROPY = "cross_entropy"
_DIFFERENCES = frozenset({"__rsub__", "rsub", "sub", "subtract"})
_FLOORS = frozenset({"clamp", "clamp_min", "clip", "relu"})
_HINGES = _DIFFERENCES | _FLOORS
_MOST_ROWS = 4_096
"""Maximum number of rows of similarities that are read."""
_LEAST_ROWS = 4
"""Minimum number of rows: two examples have few pairs, which may be symmetric by chance."""
_MOST = 100
"""Maximum number of calls that are kept."""


class OwnSimilarities(NamedTuple):
    """Similarities of examples to each other, of which the loss compares those to themselves."""

    line: Line
    rows: int
    largest: int
    """Number of rows of which no other similarity is larger than that to itself."""
    is_answer: bool = False
    """Whether that to itself is the right answer of each row."""


class ZeroLabels(NamedTuple):
    """Labels of a margin that are 0 and 1, where it expects -1 and 1."""

    line: Line
    operation: str
    """Function of the loss; `hinge` of one that is written by hand."""
    labels: int
    zeros: int


class PairLabelObserver(Observer):
    """Finds such losses: functions of torch, and a hinge by hand, `clamp(1 - labels * scores)`."""

    names = _HINGES | {*_MARGIN_LOSSES, _CROSS_ENTROPY, "mul"}

    def __init__(self) -> None:
        self.own: list[OwnSimilarities] = []
        self.zeros: list[ZeroLabels] = []
        self._products = TensorNotes[tuple[int, int]]()
        """By `id` of a product with labels, or of a number less it: number of labels, and zeros."""
        self._less: set[int] = set()
        """`id`s of the latter."""

    def wants(self, name: str, args: Args, kwargs: Kwargs) -> bool:
        """Return whether a call may be part of such a loss."""
        if name in _HINGES and not self._products:  # of most calls
            return False
        if not torch.is_grad_enabled() or len(self.own) + len(self.zeros) >= _MOST:
            return False
        if name in _HINGES:
            return any(map(self._products.of, args[:2]))
        return name != "mul" or (len(args) == 2 and all(isinstance(one, Tensor) for one in args))

    def see(self, name: str, args: Args, kwargs: Kwargs, result: object, line: Line | None) -> None:
        """Record a call that has returned."""
        given = kwargs or {}
        if line is None or not isinstance(result, Tensor) or not result.requires_grad:
            return
        if name == _CROSS_ENTROPY:
            self._see_similarities(argument(args, given, 0, "input"), args, given, line)
        elif name in _MARGIN_LOSSES:
            labels = argument(args, given, _MARGIN_LOSSES[name], "target")
            if (counted := _zeros(labels)) is not None:
                self.zeros.append(ZeroLabels(line, name, *counted))
        else:
            self._see_hinge(name, args, given, result, line)

    def _see_hinge(
        self, name: str, args: Args, given: Mapping[str, object], result: Tensor, line: Line
    ) -> None:
        """Follow a product with labels to a number less it, and to the larger of that and 0."""
        if name == "mul":
            self._see_product(args, result)
            return
        used, counted = next(
            (one, known) for one in args[:2] if (known := self._products.of(one)) is not None
        )
        if name not in _FLOORS and _is_less(name, args):
            self._products.keep(result, counted)
            self._less.add(id(result))
        elif name in _FLOORS and id(used) in self._less and _is_at_zero(name, args, given):
            self.zeros.append(ZeroLabels(line, "hinge", *counted))

    def close(self) -> None:
        """Forget everything."""
        self.own.clear()
        self.zeros.clear()
        self._products.clear()
        self._less.clear()

    def _see_similarities(
        self, logits: object, args: Args, given: Mapping[str, object], line: Line
    ) -> None:
        target = argument(args, given, 1, "target")
        if not isinstance(logits, Tensor) or not isinstance(target, Tensor):
            return
        rows = logits.shape[0] if logits.dim() == 2 else 0
        if logits.shape != (rows, rows) or target.shape != (rows,):
            return
        if not _LEAST_ROWS <= rows <= _MOST_ROWS or target.is_floating_point():
            return
        if not (has_numbers(logits) and has_numbers(target)):
            return
        # Half types have too few digits for the comparison of a matrix with its transpose.
        values = logits.detach().float()
        # Where an example's class is its own position, it is the positive pair, as in CLIP.
        answers = int((target == torch.arange(rows, device=target.device)).sum())
        if answers not in (0, rows):
            return
        own, largest = values.diagonal(), values.amax(1)
        tolerance = 1e-4 * float(values.abs().amax())
        # Similarities of one set of examples are symmetric; those of two sets are not.
        if not tolerance < float("inf") or not torch.allclose(values, values.t(), 0, tolerance):
            return
        found = int((own >= largest - tolerance).sum())
        self.own.append(OwnSimilarities(line, rows, found, is_answer=answers == rows))

    def _see_product(self, args: Args, result: Tensor) -> None:
        for labels, scores in (args, args[::-1]):
            assert isinstance(labels, Tensor)
            assert isinstance(scores, Tensor)
            if scores.requires_grad and not labels.requires_grad and labels.shape == scores.shape:
                counted = _zeros(labels)
                if counted is not None:
                    self._products.keep(result, counted)
                    self._less.discard(id(result))


def _zeros(labels: object) -> tuple[int, int] | None:
    """Return the number of labels, and of zeros, if they are 0 and 1 and both occur."""
    if not isinstance(labels, Tensor) or labels.numel() < _LEAST_ROWS or not has_numbers(labels):
        return None
    if labels.is_complex():
        return None
    zeros, ones = int((labels == 0).sum()), int((labels == 1).sum())
    return (labels.numel(), zeros) if zeros and ones and zeros + ones == labels.numel() else None


def _is_less(name: str, args: Args) -> bool:
    """Return whether a difference is that of a positive number and a tensor."""
    number = args[-1] if name in ("__rsub__", "rsub") else args[0]
    return isinstance(number, int | float) and number > 0


def _is_at_zero(name: str, args: Args, given: Mapping[str, object]) -> bool:
    """Return whether a call keeps what is above 0."""
    if name == "relu":
        return True
    return argument(args, given, 1, "min") in (0, 0.0) and argument(args, given, 2, "max") is None
