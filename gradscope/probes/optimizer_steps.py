"""A few optimizer steps on a model that is put back afterwards.

They tell a model that is sick from one that only looks so before its first step: whether a gradient
that explodes does so still, whether a branch that was initialised to zero opens.
"""

import inspect

import torch
from torch import Tensor, nn

from gradscope.capture.statistics import norms

DEFAULT_LEARNING_RATE = 1e-3
"""Of the Adam that makes the steps where the target has no optimizer."""


class OptimizerProbe:
    """Makes optimizer steps with whatever gradients the parameters hold.

    Args:
        parameters: The model's parameters.
        optimizer: The user's; None for Adam.
    """

    def __init__(
        self, parameters: list[nn.Parameter], optimizer: torch.optim.Optimizer | None
    ) -> None:
        self._parameters = parameters
        self.is_users = optimizer is not None
        self._optimizer = optimizer or torch.optim.Adam(
            [parameter for parameter in parameters if parameter.requires_grad],
            lr=DEFAULT_LEARNING_RATE,
        )

    @property
    def description(self) -> str:
        """The optimizer and its learning rates, as `AdamW(lr=0.001)`."""
        return describe_optimizer(self._optimizer)

    @property
    def obstacle(self) -> str | None:
        """Why the optimizer cannot make a step from given gradients, if it cannot."""
        closure = inspect.signature(type(self._optimizer).step).parameters.get("closure")
        if closure is not None and closure.default is inspect.Parameter.empty:
            return f"{type(self._optimizer).__name__} makes its steps with a closure"
        return None

    def step(self) -> list[float]:
        """Make one step, and return the norm of the change it made to each parameter."""
        before = [parameter.detach().clone() for parameter in self._parameters]
        self._optimizer.step()
        return norms([_change(p, old) for p, old in zip(self._parameters, before, strict=True)])


def describe_optimizer(optimizer: torch.optim.Optimizer) -> str:
    """Return an optimizer's class and learning rates, as `AdamW(lr=0.001)`."""
    rates = dict.fromkeys(
        f"{float(group['lr']):g}" for group in optimizer.param_groups if "lr" in group
    )
    return (
        f"{type(optimizer).__name__}(lr={', '.join(rates)})" if rates else type(optimizer).__name__
    )


def _change(parameter: Tensor, before: Tensor) -> Tensor:
    # In float64 the difference of two neighbouring weights is exact.
    wide = torch.complex128 if parameter.is_complex() else torch.float64
    return (parameter.detach().to(wide) - before.to(wide)).to(
        parameter.dtype
        if parameter.is_complex() or parameter.dtype is torch.float64
        else torch.float32
    )
