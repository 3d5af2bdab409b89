"""What the lines around a loss tell in a run, from loops as users write them."""

import pytest
import torch
from torch import nn

from tests.rules.watching import findings_of


def accumulating(divide):
    def loop():
        torch.manual_seed(0)
        model = nn.Linear(4, 3)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for _ in range(12):
            x, y = torch.randn(8, 4), torch.randint(3, (8,))
            loss = divide(nn.functional.cross_entropy(model(x), y))
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()

    return loop


def test_division_on_a_line_of_its_own_speaks_of_accumulation(tmp_path):
    def loop():
        torch.manual_seed(0)
        accumulation_steps = 8
        model = nn.Linear(4, 3)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for _ in range(12):
            x, y = torch.randn(8, 4), torch.randint(3, (8,))
            loss = nn.functional.cross_entropy(model(x), y)
            loss = loss / accumulation_steps
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()

    assert [one.rule for one in findings_of(loop, tmp_path)] == ["GS313"]


def test_division_by_something_else_is_a_weight(tmp_path):
    found = findings_of(accumulating(lambda loss: loss / 8), tmp_path)
    assert "GS313" not in [one.rule for one in found]


def adapting(*, only_numbers):
    """Weights that are cut off, beside a learned rate or a layer."""
    torch.manual_seed(0)
    weights = nn.ParameterList([torch.randn(6, 3), torch.randn(1, 6)])
    beside = nn.Parameter(torch.tensor(0.1)) if only_numbers else nn.Parameter(torch.ones(1, 1))
    optimizer = torch.optim.Adam([*weights, beside], lr=1e-2)
    for _ in range(8):
        x, y = torch.randn(16, 3), torch.randn(16, 1)
        fast = [one.detach().clone().requires_grad_() for one in weights]
        inner = nn.functional.mse_loss(torch.tanh(x @ fast[0].T) @ fast[1].T, y)
        first, second = torch.autograd.grad(inner, fast, create_graph=True)
        adapted = [fast[0] - beside * first, fast[1] - beside * second]
        optimizer.zero_grad()
        nn.functional.mse_loss(torch.tanh(x @ adapted[0].T) @ adapted[1].T, y).backward()
        optimizer.step()


@pytest.mark.parametrize(("only_numbers", "severity"), [(True, "error"), (False, "warning")])
def test_number_that_learns_alone_is_no_head(only_numbers, severity, tmp_path):
    found = findings_of(lambda: adapting(only_numbers=only_numbers), tmp_path)
    assert [one.severity for one in found if one.rule == "GS201"] == [severity]


def broken_at(step, *, rising=False):
    """A training whose loss is NaN from a step on, and is fine or rises until then."""

    def loop():
        torch.manual_seed(0)
        model = nn.Linear(4, 8)
        optimizer = torch.optim.Adam(model.parameters(), lr=0.3)
        x = torch.randn(16, 4)
        for number in range(30):
            loss = model(x).square().mean()
            loss = loss * (4.0**number if rising else 1.0)
            if number >= step:
                loss = loss * torch.log(loss.detach() * 0) * 0
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()

    return loop


def test_loss_that_was_fine_until_it_broke_is_told_beside_a_large_step(tmp_path):
    found = findings_of(broken_at(12), tmp_path)
    assert {"GS103", "GS104"} & {one.rule for one in found}


def test_loss_that_rose_before_it_broke_has_one_cause(tmp_path):
    found = findings_of(broken_at(12, rising=True), tmp_path)
    assert [one.rule for one in found if one.severity == "error"] == ["GS108"]
