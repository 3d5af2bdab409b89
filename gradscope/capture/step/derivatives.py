"""Observes what a script does with derivatives that it computes in the forward."""

import math
from collections.abc import Mapping
from typing import NamedTuple

import torch
from torch import Tensor
from torch._C import DisableTorchFunction

from gradscope.capture.source.lines import Line
from gradscope.capture.tensor_references import TensorRef

_STRAIGHT = frozenset(
    {
        "HardtanhBackwardBackward0",
        "LeakyReluBackwardBackward0",
        "PreluKernelBackwardBackward0",
        "RreluWithNoiseBackwardBackward0",
        "ThresholdBackwardBackward0",
    }
)
"""Second derivatives of activations that consist of straight pieces."""

_NORMS = frozenset({"linalg_norm", "linalg_vector_norm", "norm"})
_SQUARES = frozenset({"mul", "pow", "square"})
_DISTANCES = frozenset({"__rsub__", "rsub", "sub"})

_LEAST = 16
"""Number of elements below which zeros may be chance."""
_MOST_NODES = 20_000
_MOST = 1_000
"""Maximum number of calls that are followed."""


class ZeroDerivative(NamedTuple):
    """A second derivative that is zero everywhere."""

    line: Line | None
    elements: int


class PartialNorm(NamedTuple):
    """Norms over a part of a derivative that are compared with a number."""

    line: Line | None
    norms: int
    """Number of norms."""
    examples: int
    shape: tuple[int, ...]
    """Shape of the derivative."""


class _Followed(NamedTuple):
    """A tensor that was computed from a derivative by examples."""

    shape: tuple[int, ...]
    """Shape of the derivative."""
    step: str
    """`derivative`, `square`, `sum` of squares, or `norm`."""


class DerivativeObserver:
    """Follows the results of `autograd.grad` up to the distance of their norms from a number."""

    names = frozenset({"grad", "sqrt", "sum", *_NORMS, *_SQUARES, *_DISTANCES})

    def __init__(self) -> None:
        self.zeros: list[ZeroDerivative] = []
        self.partial: list[PartialNorm] = []
        self._followed: dict[int, tuple[TensorRef[Tensor], _Followed]] = {}

    def wants(
        self, name: str, args: tuple[object, ...], kwargs: Mapping[str, object] | None
    ) -> bool:
        """Return whether a call computes a derivative, or goes on with one."""
        if name == "grad":
            return len(self._followed) < _MOST
        return bool(self._followed) and any(self._known(one) for one in args[:2])

    def see(
        self,
        name: str,
        args: tuple[object, ...],
        kwargs: Mapping[str, object] | None,
        result: object,
        line: Line | None,
    ) -> None:
        """Follow a call that has returned."""
        if name == "grad":
            self._see_derivative(args, result, line)
        elif isinstance(result, Tensor):
            self._go_on(name, args, result, line)

    def close(self) -> None:
        """Release the derivatives."""
        self._followed.clear()
        self.zeros.clear()
        self.partial.clear()

    def _see_derivative(self, args: tuple[object, ...], result: object, line: Line | None) -> None:
        outputs = args[0] if args else ()
        found = result if isinstance(result, tuple | list) else (result,)
        if not isinstance(outputs, tuple | list) or len(outputs) != 1 or len(found) != 1:
            return
        output, derivative = outputs[0], found[0]
        if not (isinstance(output, Tensor) and isinstance(derivative, Tensor)):
            return
        with DisableTorchFunction(), torch.no_grad():
            if not _are_elements(derivative) or not _are_elements(output):
                return
            if _is_flat(output, derivative):
                self.zeros.append(ZeroDerivative(line, derivative.numel()))
            shape = tuple(derivative.shape)
            if len(shape) > 2 and derivative.requires_grad and _elements(output) == shape[0]:
                self._follow(derivative, _Followed(shape, "derivative"))

    def _go_on(
        self, name: str, args: tuple[object, ...], result: Tensor, line: Line | None
    ) -> None:
        known = next((known for one in args[:2] if (known := self._known(one))), None)
        if known is None:
            return
        step = _next_step(known.step, name, args)
        if step == "distance":
            shape, norms = known.shape, result.numel()
            is_part = norms % shape[0] == 0 and shape[0] < norms
            if is_part and any(isinstance(one, int | float) and one for one in args[:2]):
                self.partial.append(PartialNorm(line, norms, shape[0], shape))
        elif step is not None:
            self._follow(result, _Followed(known.shape, step))

    def _follow(self, tensor: Tensor, known: _Followed) -> None:
        self._followed[id(tensor)] = TensorRef(tensor), known

    def _known(self, tensor: object) -> _Followed | None:
        known = self._followed.get(id(tensor))
        return known[1] if known is not None and known[0]() is tensor else None


def _next_step(step: str, name: str, args: tuple[object, ...]) -> str | None:
    """Return what a call makes of a derivative, its square, or their norm."""
    match step, name:
        case "derivative", _ if name in _NORMS:
            return "norm"
        case "derivative", "pow":
            return "square" if args[1:] == (2,) else None
        case "derivative", "square":
            return "square"
        case "derivative", "mul":
            return "square" if len(args) > 1 and args[0] is args[1] else None
        case "square", "sum":
            return "sum"
        case "sum", "sqrt":
            return "norm"
        case "norm", _ if name in _DISTANCES:
            return "distance"
    return None


def _are_elements(tensor: Tensor) -> bool:
    return tensor.layout is torch.strided and not tensor.is_nested and not tensor.is_meta


def _is_flat(output: Tensor, derivative: Tensor) -> bool:
    """Return whether a derivative is zero because what it is taken of consists of steps."""
    if derivative.numel() < _LEAST or bool(derivative.any()) or not bool(output.any()):
        return False
    waiting, seen = [output.grad_fn], set[object]()
    while waiting and len(seen) < _MOST_NODES:
        node = waiting.pop()
        if node is None or node in seen:
            continue
        if node.name() in _STRAIGHT:
            return True
        seen.add(node)
        waiting += [following for following, _ in node.next_functions]
    return False


def _elements(output: Tensor) -> int:
    """Return how many results were differentiated, before they were added up."""
    if output.numel() == 1 and type(output.grad_fn).__name__ in ("MeanBackward0", "SumBackward0"):
        return math.prod(getattr(output.grad_fn, "_saved_self_sym_sizes", (1,)))
    return output.numel()
