"""Recomputes the result of an operation from its inputs and saved tensors.

It covers only operations that draw no random numbers and warn of nothing. A missing operand raises
`Unknown`.
"""

from collections.abc import Callable, Sequence
from typing import Any, Protocol

import torch
from torch import Tensor

_NN = torch._C._nn


class Unknown(Exception):  # noqa: N818 - no failure, but the end of what can be told
    """An operand is not known."""


class Operands(Protocol):
    """The operands of an operation."""

    @property
    def shape(self) -> Sequence[int]:
        """Shape of its result."""

    @property
    def dtype(self) -> torch.dtype:
        """Dtype of its result."""

    @property
    def count(self) -> int:
        """Number of its inputs."""

    def tensor(self, position: int, name: str = "") -> Tensor:
        """Return an input, by its index or by the name under which it was saved.

        Raises:
            Unknown: It is not known.
        """

    def saved(self, name: str) -> Tensor | None:
        """Return a saved tensor, None if there is none."""

    def value(self, name: str) -> Any:  # noqa: ANN401 - torch saves what it likes
        """Return a saved number, None if there is none."""


Compute = Callable[[Operands], Tensor]


def recomputation(operation: str) -> Compute | None:
    """Return a function that recomputes the result of an operation, None if there is none."""
    base, _, number = operation.partition("Backward")
    # Second derivatives have names such as `TanhBackwardBackward0`.
    return _RECOMPUTED.get(base) if number.isdigit() else None


def _of_input(function: Callable[[Tensor], Tensor]) -> Compute:
    return lambda of: function(of.tensor(0, "self"))


def _reshaped(of: Operands) -> Tensor:
    # Views save how they were made, but the shape of the result is enough.
    return of.tensor(0).reshape(tuple(of.shape))


def _number_or_tensor(of: Operands, position: int, name: str) -> Tensor | float:
    value = of.value(name)
    if isinstance(value, int | float):
        return value
    return of.tensor(position, name)


def _scaled_second(of: Operands) -> Tensor:
    alpha = of.value("alpha")
    second = of.tensor(1)
    return second if alpha in (None, 1) else second * alpha


def _add(of: Operands) -> Tensor:
    return of.tensor(0) + _scaled_second(of)


def _subtract(of: Operands) -> Tensor:
    return of.tensor(0) - _scaled_second(of)


def _multiply(of: Operands) -> Tensor:
    return of.tensor(0, "self") * _number_or_tensor(of, 1, "other")


def _divide(of: Operands) -> Tensor:
    given, other = of.tensor(0, "self"), _number_or_tensor(of, 1, "other")
    return torch.div(given, other, rounding_mode=of.value("rounding_mode"))


def _power(of: Operands) -> Tensor:
    return torch.pow(of.tensor(0, "self"), _number_or_tensor(of, 1, "exponent"))


def _reduced(function: Callable[..., Tensor]) -> Compute:
    def reduce(of: Operands) -> Tensor:
        dims, given = of.value("dim"), of.tensor(0, "self")
        if dims is None:
            return function(given)
        return function(given, dims, keepdim=bool(of.value("keepdim")))

    return reduce


def _added_product(first: str, second: str) -> Compute:
    def add(of: Operands) -> Tensor:
        beta, alpha = of.value("beta"), of.value("alpha")
        product = of.tensor(1, first) @ of.tensor(2, second)
        return of.tensor(0) * (1 if beta is None else beta) + product * (
            1 if alpha is None else alpha
        )

    return add


def _product(second: str) -> Compute:
    return lambda of: of.tensor(0, "self") @ of.tensor(1, second)


def _where(of: Operands) -> Tensor:
    condition = of.saved("condition")
    if condition is None:
        raise Unknown
    return torch.where(condition, of.tensor(0), of.tensor(1))


def _clamp(of: Operands) -> Tensor:
    return torch.clamp(of.tensor(0, "self"), of.value("min"), of.value("max"))


def _loss(function: Callable[..., Tensor]) -> Compute:
    return lambda of: function(of.tensor(0, "self"), of.tensor(1, "target"), of.value("reduction"))


def _huber(of: Operands) -> Tensor:
    given, target = of.tensor(0, "self"), of.tensor(1, "target")
    return _NN.huber_loss(given, target, of.value("reduction"), of.value("delta"))


def _softplus(of: Operands) -> Tensor:
    return _NN.softplus(of.tensor(0, "self"), of.value("beta"), of.value("threshold"))


def _cross_entropy(of: Operands) -> Tensor:
    scores, target, weight = of.tensor(0, "self"), of.tensor(1, "target"), of.saved("weight")
    reduction, ignored = of.value("reduction"), of.value("ignore_index")
    return _NN.nll_loss_nd(scores, target, weight, reduction, ignored)


def _binary(of: Operands) -> Tensor:
    given, target = of.tensor(0, "self"), of.tensor(1, "target")
    return _NN.binary_cross_entropy(given, target, of.saved("weight"), of.value("reduction"))


def _embedding(of: Operands) -> Tensor:
    indices = of.saved("indices")
    if indices is None:
        raise Unknown
    return of.tensor(0)[indices]


def _gather(of: Operands) -> Tensor:
    index = of.saved("index")
    if index is None:
        raise Unknown
    return of.tensor(0, "self").gather(of.value("dim"), index)


def _joined(function: Callable[..., Tensor]) -> Compute:
    return lambda of: function(
        [of.tensor(position) for position in range(of.count)], of.value("dim")
    )


def _layer_norm(of: Operands) -> Tensor:
    mean, scale = of.saved("result1"), of.saved("result2")
    if mean is None or scale is None:
        raise Unknown
    # `native_layer_norm` saves the mean and the reciprocal of the standard deviation.
    normal = (of.tensor(0, "input") - mean) * scale
    weight, bias = of.saved("weight"), of.saved("bias")
    normal = normal if weight is None else normal * weight
    return normal if bias is None else normal + bias


def _convolution(of: Operands) -> Tensor:
    # Only the sizes of a bias are saved: its values are an input of the node.
    bias = of.tensor(2, "bias") if of.value("bias_sym_sizes_opt") not in (None, (0,)) else None
    names = ("stride", "padding", "dilation", "transposed", "output_padding", "groups")
    numbers = [of.value(name) for name in names]
    return torch.convolution(of.tensor(0, "input"), of.tensor(1, "weight"), bias, *numbers)


_OF_INPUT: dict[str, Callable[[Tensor], Tensor]] = {
    "Abs": torch.abs,
    "Acos": torch.acos,
    "Acosh": torch.acosh,
    "Asin": torch.asin,
    "Asinh": torch.asinh,
    "Atan": torch.atan,
    "Atanh": torch.atanh,
    "Cos": torch.cos,
    "Cosh": torch.cosh,
    "Erfinv": torch.erfinv,
    "Log": torch.log,
    "Log10": torch.log10,
    "Log1P": torch.log1p,
    "Log2": torch.log2,
    "LogSigmoid": _NN.log_sigmoid,
    "Neg": torch.neg,
    "Silu": _NN.silu,
    "Sin": torch.sin,
    "Sinh": torch.sinh,
    "Square": torch.square,
}

_RECOMPUTED: dict[str, Compute] = {
    **{name: _of_input(function) for name, function in _OF_INPUT.items()},
    "Add": _add,
    "Addmm": _added_product("mat1", "mat2"),
    "Alias": _reshaped,
    "Baddbmm": _added_product("batch1", "batch2"),
    "BinaryCrossEntropy": _binary,
    "Bmm": _product("mat2"),
    "Cat": _joined(torch.cat),
    "Clamp": _clamp,
    "ClampMax": _clamp,
    "ClampMin": _clamp,
    "Clone": _reshaped,
    "Convolution": _convolution,
    "Div": _divide,
    "Dot": lambda of: torch.dot(of.tensor(0, "self"), of.tensor(1, "tensor")),
    "Embedding": _embedding,
    "Expand": lambda of: of.tensor(0).expand(tuple(of.shape)),
    "Gather": _gather,
    "Gelu": lambda of: _NN.gelu(of.tensor(0, "self"), approximate=of.value("approximate")),
    "HuberLoss": _huber,
    "L1Loss": _loss(_NN.l1_loss),
    "Mean": _reduced(torch.mean),
    "Mm": _product("mat2"),
    "MseLoss": _loss(_NN.mse_loss),
    "Mul": _multiply,
    "Mv": _product("vec"),
    "NativeLayerNorm": _layer_norm,
    "NllLoss": _cross_entropy,
    "Permute": lambda of: of.tensor(0).permute(of.value("dims")),
    "Pow": _power,
    "ReshapeAlias": _reshaped,
    "Select": lambda of: of.tensor(0).select(of.value("dim"), of.value("index")),
    "Softplus": _softplus,
    "Squeeze": _reshaped,
    "Stack": _joined(torch.stack),
    "Sub": _subtract,
    "Sum": _reduced(torch.sum),
    "T": lambda of: of.tensor(0).t(),
    "ToCopy": lambda of: of.tensor(0).to(of.dtype),
    "Transpose": lambda of: of.tensor(0).transpose(of.value("dim0"), of.value("dim1")),
    "UnsafeView": _reshaped,
    "Unsqueeze": _reshaped,
    "View": _reshaped,
    "Where": _where,
}
"""By the name of the node, without `Backward0`."""
