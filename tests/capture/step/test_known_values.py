"""Results that are recomputed from what their nodes saved are those of the forward."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from gradscope.capture.step.graph import walk
from gradscope.capture.step.known_values import KnownValues

OPERATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "added products": lambda x: torch.addmm(x, x, x, beta=2, alpha=3),
    "added products of batches": lambda x: torch.baddbmm(x[None], x[None], x[None], beta=2),
    "clamp": lambda x: x.clamp(-0.5, 0.5),
    "difference with a factor": lambda x: torch.sub(x, x.exp(), alpha=2),
    "floor of a quotient": lambda x: torch.div(x, 0.3, rounding_mode="floor"),
    "gelu": functional.gelu,
    "gelu by tanh": lambda x: functional.gelu(x, approximate="tanh"),
    "huber loss with a delta": lambda x: functional.huber_loss(
        x, x.detach() + 1, delta=0.1, reduction="none"
    ),
    "mean": lambda x: x.mean(0, keepdim=True),
    "quotient": lambda x: x / 3,
    "softplus": functional.softplus,
    "softplus with a factor": lambda x: functional.softplus(x, beta=3, threshold=1),
}


@pytest.mark.parametrize("name", OPERATIONS)
def test_recomputed_result_is_that_of_the_operation(name: str) -> None:
    given = torch.linspace(-2, 2, 9).reshape(3, 3).requires_grad_()
    result = OPERATIONS[name](given)
    root = result.sum()
    graph = walk(root)
    known = KnownValues(graph, root, readable=True)
    assert result.grad_fn is not None
    torch.testing.assert_close(known.known[graph.index[result.grad_fn], 0], result.detach())
