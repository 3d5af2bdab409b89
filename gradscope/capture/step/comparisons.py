"""Observes comparisons in the forward: losses, and differences that broadcast both operands."""

from typing import NamedTuple

import torch
from torch import Tensor
from torch._C import DisableTorchFunction

from gradscope.capture.naming import shape_of
from gradscope.capture.observed_calls import Args, Kwargs, Observer, argument
from gradscope.capture.reading import has_numbers
from gradscope.capture.source.lines import Line
from gradscope.capture.step.graph import Edge, edges, without_node
from gradscope.capture.step.sequences.tokens import PaddedTargets, TokenSequences
from gradscope.capture.tensor_references import TensorNotes
from gradscope.recording.records import Shape

REGRESSIONS = frozenset({"huber_loss", "l1_loss", "mse_loss", "smooth_l1_loss"})
"""Functions that compare numbers with targets, element by element."""
LOSS_FUNCTIONS = frozenset(
    {
        "binary_cross_entropy",
        "binary_cross_entropy_with_logits",
        "cosine_similarity",
        "cross_entropy",
        "ctc_loss",
        "gaussian_nll_loss",
        "kl_div",
        "nll_loss",
        "poisson_nll_loss",
        "soft_margin_loss",
        *REGRESSIONS,
    }
)
"""Functions of a prediction and a target."""

_OF_CLASSES = frozenset({"cross_entropy", "nll_loss"})
_IGNORED = -100
"""Class that these losses ignore by default."""
_OF_TWO_CLASSES = frozenset({"binary_cross_entropy", "binary_cross_entropy_with_logits"})
_POSITION_OF_IGNORED = 4

_OF_TWO = _OF_TWO_CLASSES | {"mse_loss"}
"""Functions by which a critic learns to tell two kinds of examples apart."""
_LOOKUP = "embedding"
_ELEMENTWISE = frozenset({"mul", "sub"})
_PASSED_ON = _ELEMENTWISE | {"add", "detach", "div"}
"""Functions whose result has the shape that the operands of an earlier one broadcast to."""
_FLATTENING = frozenset({"flatten", "reshape", "view"})
_FIRST_OLD = 3
"""Position of the first argument after the operands: of many losses a deprecated reduction."""

MOST_COMPARISONS = 1_000
"""Maximum number of comparisons recorded per forward."""


class Comparison(NamedTuple):
    """A call that compared two tensors."""

    operation: str
    line: Line | None
    left: Shape
    right: Shape
    left_edge: Edge | None
    """None for data."""
    right_edge: Edge | None
    result: Edge
    left_from: Shape | None
    """Shape before its dimensions were joined; None if they were not."""
    right_from: Shape | None
    reduction: str | None
    """`mean`, `sum` or `none`; None for other comparisons, or if unknown."""
    ahead: int | None
    """Positions by which targets run ahead of the model's tokens; None if they are no such."""
    padded: PaddedTargets | None
    """Targets at padding of the model's tokens; None if there is none, or it is unknown."""
    grown: Line | None
    """Line whose operands broadcast each other, and made an operand of this call of them."""
    label: float | None
    """Number that all targets are, of a loss that may tell two classes apart; otherwise None."""


class ComparisonObserver(Observer):
    """Records losses, and differences and products that broadcast both operands."""

    names = LOSS_FUNCTIONS | _PASSED_ON | _FLATTENING | {_LOOKUP}

    def __init__(self) -> None:
        self.comparisons: list[Comparison] = []
        self._flattened = TensorNotes[Shape]()
        """Shape of a tensor before its dimensions were joined."""
        self._grown = TensorNotes[Line]()
        """Line of the arithmetic that made a tensor of operands which broadcast each other."""
        self.tokens = TokenSequences()

    def wants(self, name: str, args: Args, kwargs: Kwargs) -> bool:
        """Return whether a loss is computed, both operands grow, or dimensions may be joined."""
        if name in _FLATTENING:
            given = args[0] if args else None
            is_full = len(self._flattened) == MOST_COMPARISONS
            return isinstance(given, Tensor) and given.ndim > 1 and not is_full
        if name == _LOOKUP:
            return not self.tokens.is_full
        if name in _PASSED_ON and self._grown and self._grown_at(args) is not None:
            return True
        operands = _operands(args, kwargs)
        if operands is None or len(self.comparisons) == MOST_COMPARISONS:
            return False
        left, right = operands
        # The shape of a nested tensor has no plain numbers.
        if left.is_nested or right.is_nested:
            return False
        return name not in _PASSED_ON or grow_both(left.shape, right.shape)

    def see(self, name: str, args: Args, kwargs: Kwargs, result: object, line: Line | None) -> None:
        """Record the operands of a call that added to the graph, or a shape before a call."""
        if name in _FLATTENING:
            self._note_flattened(args[0], result)
            return
        if name == _LOOKUP:
            given = kwargs or {}
            padding = argument(args, given, 2, "padding_idx")
            self.tokens.add(argument(args, given, 0, "input"), padding)
            return
        if not isinstance(result, Tensor):
            return
        operands = _operands(args, kwargs)
        grown = self._grown_at(args if operands is None else operands)
        if name in _PASSED_ON:
            self._note_grown(result, grown or line)
        if operands is None or name in _PASSED_ON - _ELEMENTWISE:
            return
        left, right = operands
        # Wanted only because an operand had grown.
        if name in _ELEMENTWISE and left.shape == right.shape:
            return
        outcome = _edge(result)
        ignored = _ignored(name, args, kwargs)
        if outcome is not None:
            self.comparisons.append(
                Comparison(
                    operation=name,
                    line=line,
                    left=_shape(left),
                    right=_shape(right),
                    left_edge=_edge(left),
                    right_edge=_edge(right),
                    result=outcome,
                    left_from=self._flattened.of(left),
                    right_from=self._flattened.of(right),
                    reduction=_reduction(name, args, kwargs),
                    ahead=self.tokens.ahead(right, ignored) if ignored is not None else None,
                    padded=self._padded(name, right, ignored, args, kwargs),
                    grown=grown,
                    label=_label(right) if name in _OF_TWO else None,
                )
            )

    def _padded(
        self, name: str, target: Tensor, ignored: int | None, args: Args, kwargs: Kwargs
    ) -> PaddedTargets | None:
        weight = argument(args, kwargs, 2, "weight")
        # Of two dimensions, the second may hold labels that do not exclude each other.
        if name in _OF_TWO_CLASSES and weight is None and target.ndim != 2:
            return self.tokens.at_padding(target, _IGNORED, None, are_shares=True)
        if ignored is None:
            return None
        return self.tokens.at_padding(
            target, ignored, weight if isinstance(weight, Tensor) else None
        )

    def _note_flattened(self, given: object, result: object) -> None:
        if not (isinstance(given, Tensor) and isinstance(result, Tensor)) or given.is_nested:
            return
        if result.ndim < given.ndim:
            self._flattened.keep(result, _shape(given))

    def _note_grown(self, result: Tensor, line: Line | None) -> None:
        if line is not None and len(self._grown) < MOST_COMPARISONS:
            self._grown.keep(result, line)

    def _grown_at(self, operands: tuple[object, ...]) -> Line | None:
        for one in operands:
            if (known := self._grown.of(one)) is not None:
                return known
        return None

    def close(self) -> None:
        """Release the graph."""
        self.comparisons.clear()
        self.tokens.clear()
        self._flattened.clear()
        self._grown.clear()


def grow_both(left: torch.Size, right: torch.Size) -> bool:
    """Return whether broadcasting two shapes makes both tensors larger."""
    if left == right or left.numel() <= 1 or right.numel() <= 1:
        return False
    size = 1
    rank = max(len(left), len(right))
    padded = ((1,) * (rank - len(left)) + left, (1,) * (rank - len(right)) + right)
    for one, other in zip(*padded, strict=True):
        size *= other if one == 1 else one
    return size > left.numel() and size > right.numel()


def _operands(args: Args, kwargs: Kwargs) -> tuple[Tensor, Tensor] | None:
    kwargs = kwargs or {}
    left = argument(args, kwargs, 0, "input")
    right = args[1] if len(args) > 1 else kwargs.get("target", kwargs.get("other"))
    if isinstance(left, Tensor) and isinstance(right, Tensor):
        return left, right
    return None


def _label(target: Tensor) -> float | None:
    """Return the number that all elements of a target are; None if they differ."""
    with DisableTorchFunction(), torch.no_grad():
        if target.requires_grad or target.numel() == 0 or not has_numbers(target):
            return None
        lowest, highest = torch.aminmax(target)
        return float(lowest) if bool(lowest == highest) else None


def _ignored(name: str, args: Args, kwargs: Kwargs) -> int | None:
    """Return the class that a loss of classes ignores; None for other losses."""
    if name not in _OF_CLASSES:
        return None
    position = _POSITION_OF_IGNORED
    default = args[position] if len(args) > position else _IGNORED
    ignored = (kwargs or {}).get("ignore_index", default)
    return ignored if isinstance(ignored, int) else None


def _reduction(name: str, args: Args, kwargs: Kwargs) -> str | None:
    if name not in LOSS_FUNCTIONS:
        return None
    kwargs = kwargs or {}
    averaged, reduced = kwargs.get("size_average"), kwargs.get("reduce")
    if averaged is not None or reduced is not None:  # deprecated, and stronger than `reduction`
        if reduced is not None and not reduced:
            return "none"
        return "mean" if averaged is None or averaged else "sum"
    given = kwargs.get("reduction", "mean" if len(args) < _FIRST_OLD else None)
    return given if isinstance(given, str) else None


def _shape(tensor: Tensor) -> Shape:
    with DisableTorchFunction():
        return shape_of(tensor)


def _edge(tensor: Tensor) -> Edge | None:
    return next(map(without_node, edges(tensor)), None)
