"""Observes what a script does with derivatives that it computes in the forward."""

import math
from collections.abc import Iterable, Iterator, Mapping
from types import FrameType
from typing import NamedTuple

import torch
from torch import Tensor
from torch._C import DisableTorchFunction

from gradscope.capture.observed_calls import Args, Kwargs, Observer
from gradscope.capture.source.lines import Line, created, is_users
from gradscope.capture.step.graph import behind
from gradscope.capture.tensor_references import TensorNotes

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

_READS = frozenset(
    {"__set__", "add_", "copy_", "detach", "item", "numpy", "sub_", "tolist"}
    | {"_foreach_add_", "_foreach_sub_"}
)
"""Functions that use the numbers of a derivative, and not its graph."""

_LEAST = 16
"""Number of elements below which zeros may be chance."""
_MOST = 1_000
"""Maximum number of calls that are followed."""


class ZeroDerivative(NamedTuple):
    """A second derivative that is zero everywhere."""

    line: Line | None
    elements: int
    has_graph: bool


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


class GraphedDerivatives:
    """The derivatives that were computed with `create_graph=True`, and what uses them.

    A derivative is used by another derivative of what it is part of, by a read of its numbers, or
    by a backward through one of its nodes. The last one is for the caller to find out.
    """

    def __init__(self) -> None:
        self.nodes: dict[Line, set[int]] = {}
        """By line of a call that is not used so far: sequence numbers of the results' nodes."""
        self.used: set[Line] = set()
        self._results = TensorNotes[Line]()

    def __bool__(self) -> bool:
        return bool(self._results)

    def add(self, results: Iterable[object], line: Line | None) -> None:
        """Take in the results of a call."""
        # Those of `torch.func` lose their graph with the transform.
        if line is None or line in self.used or torch._C._functorch.peek_interpreter_stack():
            return
        for one in results:
            if isinstance(one, Tensor) and one.grad_fn is not None:
                # Numbers, because a set of nodes would keep the graph alive.
                self.nodes.setdefault(line, set()).add(one.grad_fn._sequence_nr())
                self._results.keep(one, line)

    def differentiate(self, outputs: Iterable[object]) -> None:
        """Note that a derivative of outputs is taken."""
        roots = [one.grad_fn for one in outputs if isinstance(one, Tensor)]
        numbers = set(map(created, behind(roots)))
        self._use(line for line, own in self.nodes.items() if not own.isdisjoint(numbers))

    def read(self, args: Iterable[object]) -> None:
        """Note that a function uses the numbers of its arguments."""
        self._use(line for one in _flat(args) if (line := self.line_of(one)) is not None)

    def line_of(self, one: object) -> Line | None:
        """Return the line that computed a derivative, None for any other object."""
        return self._results.of(one)

    def knows(self, args: Iterable[object]) -> bool:
        """Return whether a derivative is among arguments, or in a list of them."""
        return any(self.line_of(one) is not None for one in _flat(args))

    def close(self) -> None:
        """Release the derivatives; lines and numbers remain."""
        self._results.clear()

    def _use(self, lines: Iterable[Line]) -> None:
        for line in list(lines):
            self.used.add(line)
            self.nodes.pop(line, None)


def _flat(args: Iterable[object]) -> Iterator[object]:
    for one in args:
        if isinstance(one, tuple | list):
            yield from one
        else:
            yield one


class DerivativeObserver(Observer):
    """Follows the results of `autograd.grad` up to the distance of their norms from a number."""

    names = frozenset({"grad", "sqrt", "sum", *_NORMS, *_SQUARES, *_DISTANCES, *_READS})

    def __init__(self) -> None:
        self.graphed = GraphedDerivatives()
        self.zeros: list[ZeroDerivative] = []
        self.partial: list[PartialNorm] = []
        self._followed = TensorNotes[_Followed]()

    def wants(self, name: str, args: Args, kwargs: Kwargs) -> bool:
        """Return whether a call computes a derivative, or goes on with one."""
        if name == "grad":
            return len(self._followed) < _MOST
        if self.graphed and self._reads(name) and self.graphed.knows(args):
            return True
        return bool(self._followed) and any(self._followed.of(one) for one in args[:2])

    def see(self, name: str, args: Args, kwargs: Kwargs, result: object, line: Line | None) -> None:
        """Follow a call that has returned."""
        if name == "grad":
            self._see_graph(args, kwargs or {}, result, line)
            self._see_derivative(args, result, line)
            return
        if self._reads(name):
            self.graphed.read(args)
        if isinstance(result, Tensor):
            self._go_on(name, args, result, line)

    def close(self) -> None:
        """Release the derivatives."""
        self._followed.clear()
        self.graphed.close()
        self.zeros.clear()
        self.partial.clear()

    def _reads(self, name: str) -> bool:
        # Without gradients, no function can add the derivative to another graph.
        return name in _READS or not torch.is_grad_enabled()

    def _see_graph(
        self, args: Args, kwargs: Mapping[str, object], result: object, line: Line | None
    ) -> None:
        with DisableTorchFunction():
            if self.graphed:
                self.graphed.differentiate(_flat(args[:1]))
            if kwargs.get("create_graph"):
                self.graphed.add(_flat((result,)), line)

    def _see_derivative(self, args: Args, result: object, line: Line | None) -> None:
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
                self.zeros.append(
                    ZeroDerivative(line, derivative.numel(), derivative.requires_grad)
                )
            shape = tuple(derivative.shape)
            if len(shape) > 2 and derivative.requires_grad and _elements(output) == shape[0]:
                self._followed.keep(derivative, _Followed(shape, "derivative"))

    def _go_on(self, name: str, args: Args, result: Tensor, line: Line | None) -> None:
        known = next((known for one in args[:2] if (known := self._followed.of(one))), None)
        if known is None:
            return
        step = _next_step(known.step, name, args)
        # A gradient penalty needs one norm per example; several per example are norms over a part.
        if step == "distance":
            shape, norms = known.shape, result.numel()
            is_part = norms % shape[0] == 0 and shape[0] < norms
            if is_part and any(isinstance(one, int | float) and one for one in args[:2]):
                self.partial.append(PartialNorm(line, norms, shape[0], shape))
        elif step is not None:
            self._followed.keep(result, _Followed(known.shape, step))


def _next_step(step: str, name: str, args: Args) -> str | None:
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
    return any(node.name() in _STRAIGHT for node in behind([output.grad_fn]))


def _elements(output: Tensor) -> int:
    """Return how many results were differentiated, before they were added up."""
    if output.numel() == 1 and type(output.grad_fn).__name__ in ("MeanBackward0", "SumBackward0"):
        return math.prod(getattr(output.grad_fn, "_saved_self_sym_sizes", (1,)))
    return output.numel()


_SWITCHES = {"first_order": False, "fomaml": False, "second_order": True, "create_graph": True}
"""Names of switches of meta-learning, and their value that asks for second-order gradients."""


def asks_for_second_order(frame: FrameType | None) -> bool | None:
    """Return what a switch among the variables of a function, or of its object, asks for.

    None if it has no such switch.
    """
    while frame is not None and not is_users(frame.f_code):
        frame = frame.f_back
    if frame is None:
        return None
    variables = frame.f_locals
    attributes = getattr(variables.get("self"), "__dict__", {})
    for name, wanted in _SWITCHES.items():
        value = variables.get(name, attributes.get(name))
        if isinstance(value, bool):
            return value is wanted
    return None
