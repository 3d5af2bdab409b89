"""Compares the backward of a custom function with finite differences."""

import time
from collections.abc import Iterable, Iterator, Sequence

import torch
from torch import Tensor
from torch.autograd import Function

from gradscope.errors import GradscopeError
from gradscope.frozen import dataclass
from gradscope.probes.forward.operations import Operation, OperationMode
from gradscope.probes.snapshot import RandomStates

MOST_ELEMENTS = 2_000_000
"""Maximum number of elements of a checked input: each difference runs the forward twice."""

_WORK = 20_000_000
"""Maximum number of elements computed by all forwards for one input."""

_OVERHEAD = 1_000
"""Overhead of an operation, in elements."""

_SECONDS = 10.0
"""Maximum seconds for the minimum number of comparisons. Beyond that, their number depends on the
work and not on time, because it must be reproducible."""

_FEWEST, _MOST = 8, 64
"""Minimum and maximum number of elements compared per input."""


@dataclass(frozen=True, slots=True)
class Precision:
    """Precision of the differences."""

    dtype: torch.dtype
    step: float
    """Relative step of a difference: near the cube root of the rounding error, where central
    differences are most exact."""
    smooth: float
    """Maximum relative deviation between left, right and smaller-step differences: ten times or
    more above the effect of curvature, and far below that of a kink."""
    linear: float
    """Maximum relative deviation between twice a gradient and the gradient of twice the vector."""


DOUBLE = Precision(torch.float64, step=1e-5, smooth=1e-3, linear=1e-9)
SINGLE = Precision(torch.float32, step=4e-3, smooth=5e-2, linear=1e-4)
"""Precision for functions without float64, such as accelerator kernels."""

_SMALLER = 1 / 8
"""The smaller step relative to the step. Two steps of one size may agree by chance in float32."""

_NOTHING = 1e-6
"""Differences below this share of the maximum count as zero."""

_CHOSEN_SHARE = 0.9
"""If at least this share of the elements has a gradient but no influence, it was chosen."""


class UncheckedError(GradscopeError):
    """A function cannot be checked; the message says why."""


class ChosenGradientError(GradscopeError):
    """A function's gradient is not meant to be its derivative; the message gives the evidence."""


class IgnoredGradientError(ChosenGradientError):
    """A function chooses its gradient, and returns the same one whatever it is given."""


@dataclass(frozen=True, slots=True)
class Comparison:
    """The gradient with respect to one input, computed in both ways for each element."""

    position: int
    """Index of the input among the function's arguments."""
    analytical: Tensor
    numerical: Tensor
    is_constant: bool
    """Whether backward returns the same for every gradient."""


@dataclass(frozen=True, slots=True)
class _Differences:
    """Differences for each sampled element."""

    analytical: Tensor
    left: Tensor
    right: Tensor
    near: Tensor
    """Differences to the right, over a smaller step."""

    @property
    def _scale(self) -> Tensor:
        return torch.stack([self.analytical, self.left, self.right]).abs().nan_to_num(0, 0).max()

    def is_smooth(self, tolerance: float) -> Tensor:
        ways = torch.stack([self.left, self.right, self.near])
        return ways.amax(0) - ways.amin(0) <= tolerance * ways.abs().amax(0)

    @property
    def has_influence(self) -> Tensor:
        return torch.maximum(self.left.abs(), self.right.abs()) > _NOTHING * self._scale

    @property
    def has_gradient(self) -> Tensor:
        return self.analytical.abs() > _NOTHING * self._scale


def compare(
    function: type[Function],
    args: Sequence[object],
    differentiable: Sequence[int],
    precision: Precision,
) -> list[Comparison]:
    """Compare the gradient with respect to every differentiable input.

    Args:
        function: The custom function.
        args: Arguments of the function; they are not changed.
        differentiable: Indices of the arguments that require grad.
        precision: Precision of the computation.

    Raises:
        UncheckedError: Finite differences cannot judge it.
        ChosenGradientError: Its gradient is not meant to be the derivative.
        IgnoredGradientError: Nor does it depend on the gradient that backward is given.
    """
    trial = _Trial(function, args, differentiable, precision)
    gradients = trial.gradients()
    by_position = {
        position: trial.differences(position, gradient)
        for position, gradient in gradients.items()
        if gradient.any()  # None and zero are ways to stop a gradient
    }
    is_ignored = trial.constant.issuperset(by_position)
    for differences in by_position.values():
        _refuse_chosen(differences, is_ignored=is_ignored)
    found = [
        Comparison(
            position,
            differences.analytical[judged],
            _numerical(differences)[judged],
            is_constant=position in trial.constant,
        )
        for position, differences in by_position.items()
        if (judged := _judged(differences, precision)).any()
    ]
    if not found:
        raise UncheckedError("no input with a gradient changes its output")
    return found


def _numerical(differences: _Differences) -> Tensor:
    return (differences.left + differences.right) / 2


def _refuse_chosen(differences: _Differences, *, is_ignored: bool) -> None:
    """Reject a function that has a gradient although its input has no influence.

    Args:
        differences: Derivatives by one input.
        is_ignored: Whether backward returns the same for every gradient.

    Raises:
        ChosenGradientError: This holds nearly everywhere, as for a straight-through estimator.
        IgnoredGradientError: So it does, and backward ignores the gradient that it is given.
    """
    matters = differences.has_gradient | differences.has_influence
    without = differences.has_gradient & ~differences.has_influence
    if without.sum() >= _CHOSEN_SHARE * matters.sum():
        kind = IgnoredGradientError if is_ignored else ChosenGradientError
        raise kind("it has a gradient where its output does not change")


def _judged(differences: _Differences, precision: Precision) -> Tensor:
    """Return the elements that show whether the gradient is right.

    Elements without influence do not: a clamp may pass gradients on purpose.

    Raises:
        UncheckedError: Most elements are unusable, for example if the function computes in float32.
    """
    influential = differences.has_influence
    judged = influential & differences.is_smooth(precision.smooth)
    if 2 * judged.sum() < influential.sum():
        raise UncheckedError(
            f"it is not smooth around its inputs, or computes in less than {_name(precision)}"
        )
    return judged


class _Work(OperationMode):
    """Adds up the work of a forward."""

    def __init__(self) -> None:
        super().__init__()
        self.elements = 0

    def ran(self, operation: Operation) -> None:
        """Add the elements that the operation wrote."""
        self.elements += _OVERHEAD + sum(tensor.numel() for tensor in operation.outputs)


class _Trial:
    """A custom function with one set of arguments."""

    def __init__(
        self,
        function: type[Function],
        args: Sequence[object],
        differentiable: Sequence[int],
        precision: Precision,
    ) -> None:
        self._function = function
        self._precision = precision
        self._args = [_converted(arg, precision.dtype) for arg in args]
        self._inputs = {position: _tensor(self._args[position]) for position in differentiable}
        self._random_states = RandomStates.now()
        # A generator of its own leaves the random numbers of the function alone.
        self._generator = torch.Generator().manual_seed(0)
        if any(tensor.is_complex() for tensor in self._inputs.values()):
            raise UncheckedError("its inputs are complex")
        if sum(tensor.numel() for tensor in self._inputs.values()) > MOST_ELEMENTS:
            raise UncheckedError(f"its inputs have more than {MOST_ELEMENTS:,} elements")
        with torch.no_grad():
            with _Work() as work:
                first = self._apply(self._args)
            began = time.perf_counter()
            second = self._apply(self._args)
        # An element needs three forwards.
        if 3 * _FEWEST * (time.perf_counter() - began) > _SECONDS:
            raise UncheckedError("its forward takes too long")
        self._work = work.elements
        self._refuse_unfit(first, second)
        self._vectors: dict[int, Tensor] = {}
        """Vectors for the vector-Jacobian products, by index of the differentiable output."""
        self.constant: set[int] = set()
        """Indices of inputs for which backward returns the same for every gradient."""

    def _refuse_unfit(self, first: list[object], second: list[object]) -> None:
        floating = _floating(first)
        if not floating or any(out.dtype is not self._precision.dtype for out in floating):
            raise UncheckedError(f"it does not compute in {_name(self._precision)}")
        if not all(map(torch.equal, floating, _floating(second))):
            raise UncheckedError("its output differs from call to call")
        if self._returns_an_input(self._args, floating) and self._returns_an_input(*self._moved()):
            raise ChosenGradientError("its forward returns its input")

    def _returns_an_input(self, args: Sequence[object], outputs: list[Tensor]) -> bool:
        inputs = [_tensor(args[position]) for position in self._inputs]
        return any(_holds_the_same(tensor, out) for tensor in inputs for out in outputs)

    @torch.no_grad()
    def _moved(self) -> tuple[list[object], list[Tensor]]:
        """Return other inputs and their outputs.

        At initialization, some functions return their input by chance, such as an affine one of
        scale 1.
        """
        args = list(self._args)
        for position, tensor in self._inputs.items():
            noise = torch.rand(tensor.shape, generator=self._generator, dtype=torch.float64)
            args[position] = tensor * (1 + noise / 8).to(tensor) + noise.to(tensor) / 8
        return args, _floating(self._apply(args))

    def gradients(self) -> dict[int, Tensor]:
        """Return the result of backward, by index of the input, without omitted ones.

        Raises:
            UncheckedError: It is not linear in the gradient that it gets, for example because it
                clips.
        """
        # Backward is a vector-Jacobian product, so it has to be linear in the vector.
        once, twice = self._gradients(1), self._gradients(2)
        for position, gradient in once.items():
            if self._is_near(twice[position], 2 * gradient):
                continue
            # Losses that precompute their gradient may require a gradient of 1.
            if self._is_loss or not all(
                self._is_near(other[position], gradient) for other in (twice, self._gradients(-1))
            ):
                raise UncheckedError("its backward is not linear in the gradient it is given")
            self.constant.add(position)
        return once

    @property
    def _is_loss(self) -> bool:
        return all(vector.numel() == 1 for vector in self._vectors.values())

    def _is_near(self, one: Tensor, other: Tensor) -> bool:
        scale = other.abs().max() if other.numel() else 0
        return bool(((one - other).abs() <= self._precision.linear * scale).all())

    def _gradients(self, factor: int) -> dict[int, Tensor]:
        leaves = {position: x.clone().requires_grad_() for position, x in self._inputs.items()}
        # Clones, because a function may write to its inputs.
        args = [leaves[p].clone() if p in leaves else arg for p, arg in enumerate(self._args)]
        with torch.enable_grad():
            outputs = [
                (position, out)
                for position, out in enumerate(self._apply(args))
                if isinstance(out, Tensor) and out.requires_grad
            ]
        for position, out in outputs:
            if position not in self._vectors:
                noise = torch.randn(out.shape, generator=self._generator, dtype=torch.float64)
                self._vectors[position] = noise.to(out.device, out.dtype)
        if not outputs:
            raise UncheckedError("no output requires grad")
        found = torch.autograd.grad(
            [out for _, out in outputs],
            list(leaves.values()),
            [factor * self._vectors[position] for position, _ in outputs],
            allow_unused=True,
        )
        pairs = zip(leaves, found, strict=True)
        return {position: gradient.detach() for position, gradient in pairs if gradient is not None}

    @torch.no_grad()
    def differences(self, position: int, gradient: Tensor) -> _Differences:
        """Return the derivatives by some elements of an input, computed in both ways."""
        x = self._inputs[position]
        chosen = self._elements(gradient)
        scale = float(x.square().mean().sqrt()) or 1.0
        here = self._apply(self._args)
        rows = []
        for index in chosen:
            step = self._precision.step * max(abs(float(x[index])), scale)
            slopes = (
                self._slope(position, index, move, here) for move in (-step, step, step * _SMALLER)
            )
            rows.append((float(gradient[index]), *slopes))
        return _Differences(*torch.tensor(rows, dtype=torch.float64).unbind(1))

    def _elements(self, gradient: Tensor) -> Iterator[tuple[int, ...]]:
        """Yield the indices of the elements to compare: the largest gradients, and some others."""
        flat = gradient.abs().flatten().cpu()
        total = sum(tensor.numel() for tensor in self._inputs.values())
        count = min(max(_WORK // max(total, self._work, 1), _FEWEST), _MOST, flat.numel())
        # Errors of large gradients matter most; the others show elements that wrongly get none.
        greatest = flat.topk(count // 2).indices.tolist()
        others = torch.randperm(flat.numel(), generator=self._generator)[:count].tolist()
        for number in list(dict.fromkeys([*greatest, *others]))[:count]:
            yield tuple(int(i) for i in torch.unravel_index(torch.tensor(number), gradient.shape))

    def _slope(
        self, position: int, index: tuple[int, ...], step: float, here: list[object]
    ) -> float:
        moved = self._inputs[position].clone()
        moved[index] += step
        # What was really added: rounding changes a small step next to a large element.
        went = float(moved[index].double() - self._inputs[position][index].double())
        args = [moved if p == position else arg for p, arg in enumerate(self._args)]
        there = self._apply(args)
        # Subtract first: unchanged elements must cancel exactly.
        changes = (
            vector.double() * (_tensor(there[out]).double() - _tensor(here[out]).double())
            for out, vector in self._vectors.items()
        )
        return sum(float(change.sum()) for change in changes) / went

    def _apply(self, args: Sequence[object]) -> list[object]:
        """Return the outputs, always from the same random state."""
        # A function that draws random numbers, as dropout does, has no derivative otherwise.
        self._random_states.restore()
        given = [arg.clone() if isinstance(arg, Tensor) else arg for arg in args]
        result = self._function.apply(*given)
        return list(result) if isinstance(result, tuple | list) else [result]


def _name(precision: Precision) -> str:
    return str(precision.dtype).removeprefix("torch.")


def _converted(arg: object, dtype: torch.dtype) -> object:
    if not isinstance(arg, Tensor):
        return arg
    return arg.detach().to(dtype) if arg.is_floating_point() else arg.detach()


def _tensor(value: object) -> Tensor:
    assert isinstance(value, Tensor)
    return value


def _floating(values: Iterable[object]) -> list[Tensor]:
    return [one for one in values if isinstance(one, Tensor) and one.is_floating_point()]


def _holds_the_same(one: Tensor, other: Tensor) -> bool:
    """Return whether two tensors have the same elements in the same order."""
    return one.numel() == other.numel() and torch.equal(one.flatten(), other.flatten())
