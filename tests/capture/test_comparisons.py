"""Tests which comparisons of the forward are recorded."""

import pytest
import torch
from torch import nn
from torch.nn import functional

from gradscope.capture.step.comparisons import grow_both
from gradscope.capture.step.forward_backward import StepCapture

A = torch.randn(4, 1, requires_grad=True)


@pytest.mark.parametrize(
    ("left", "right"),
    [
        ((4, 1), (4,)),
        ((4,), (4, 1)),
        ((4, 1), (1, 4)),
        ((3, 1, 5), (3, 5)),
        ((1, 1), (4,)),
        ((4, 4), (4,)),
        ((4,), ()),
        ((), (4,)),
        ((0, 1), (3,)),
        ((4,), (4,)),
        ((2, 3, 1), (1, 1, 5)),
    ],
)
def test_growth_is_what_torch_broadcasts(left, right):
    result = torch.broadcast_shapes(left, right).numel()
    sizes = torch.Size(left).numel(), torch.Size(right).numel()
    expected = result > sizes[0] and result > sizes[1]
    assert grow_both(torch.Size(left), torch.Size(right)) == expected


def seen(forward):
    capture = StepCapture([])
    with capture.forward():
        forward()
    return [
        (one.operation, one.left.dims, one.right.dims) for one in capture.comparisons.comparisons
    ]


def test_loss_functions_are_seen_once_modules_and_keywords_included():
    target = torch.randn(4, 1)
    expected = [("mse_loss", (4, 1), (4, 1))]
    assert seen(lambda: nn.MSELoss()(A, target)) == expected
    assert seen(lambda: functional.mse_loss(A, target)) == expected
    assert seen(lambda: functional.mse_loss(input=A, target=target)) == expected


def test_differences_and_products_are_seen_where_both_grow():
    row = torch.randn(4)
    for operate in (
        lambda: A - row,
        lambda: row - A,
        lambda: A * row,
        lambda: torch.sub(A, row),
        lambda: A.sub(other=row),
    ):
        assert len(seen(operate)) == 1
    for operate in (lambda: A - A, lambda: A - 1, lambda: 2 * A, lambda: A - row[:1]):
        assert seen(operate) == []


def test_what_is_not_part_of_the_graph_is_not_observed():
    def without_grad():
        with torch.no_grad():
            return functional.mse_loss(A, torch.zeros(4, 1))

    assert seen(without_grad) == []
    assert seen(lambda: functional.mse_loss(A.detach(), torch.zeros(4, 1))) == []


def test_only_data_has_no_edge():
    capture = StepCapture([])
    with capture.forward():
        functional.l1_loss(2 * A, torch.zeros(4, 1))
    (one,) = capture.comparisons.comparisons
    assert one.left_edge is not None
    assert one.left_edge.number is not None
    assert one.right_edge is None
    capture.close()
    assert capture.comparisons.comparisons == []
