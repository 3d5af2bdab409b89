import pytest
import torch

from gradscope.rules.engine import judge
from gradscope.rules.settings import Settings
from tests.rules.accumulation.runs import Run
from tests.rules.inspecting import only
from tests.rules.optimizing import Net, inspected


def listed_twice(parameters):
    listed = list(parameters)
    return torch.optim.SGD([*listed[:2], *listed], lr=0.1)


@pytest.mark.filterwarnings("ignore:optimizer contains a parameter group with duplicate")
def test_duplicates_are_one_error():
    report = inspected(listed_twice)
    finding = only(report.findings, "GS215")
    assert finding.severity == "error"
    assert finding.parameters == ("embed.weight", "embed.bias")


@pytest.mark.filterwarnings("ignore:optimizer contains a parameter group with duplicate")
def test_torch_steps_a_duplicate_twice():
    parameter = torch.nn.Parameter(torch.zeros(1))
    optimizer = torch.optim.SGD([parameter, parameter], lr=0.1)
    parameter.grad = torch.ones(1)
    optimizer.step()
    assert parameter.item() == pytest.approx(-0.2)


def test_tied_weights_are_listed_once():
    model = Net()
    model.head = torch.nn.Linear(8, 8)
    model.head.weight = model.body.weight
    findings = inspected(lambda ps: torch.optim.SGD(ps, 0.1), model).findings
    assert "GS215" not in {finding.rule for finding in findings}


def pair(
    *, second=(2, 3), turns=False, rates=(0.1, 0.1), steps=6, zero_between=False, lines=(5, 6)
):
    """Two optimizers; the first holds parameters 0 to 3."""
    run = Run()
    weights = run.model("model", 6)
    held = tuple(second)
    optimizers = [
        run.optimizer(weights[:4], line=lines[0], lr=rates[0], name="slow"),
        run.optimizer(held, line=lines[1], lr=rates[1], name="fast"),
    ]
    for step in range(steps):
        for optimizer in optimizers:
            run.zero(optimizer, line=10)
        run.backward(weights, line=11)
        if turns:
            run.step(optimizers[step % 2], line=12)
            continue
        run.step(optimizers[0], line=12)
        if zero_between:
            run.zero(optimizers[1], line=13)
            run.backward(held, line=14)
        run.step(optimizers[1], line=15)
    return [one for one in judge(run.recording()).findings if one.rule == "GS215"]


def test_parameters_that_two_optimizers_step_are_an_error_at_the_larger():
    (found,) = pair()
    assert (found.severity, found.location.line, found.count) == ("error", 5, 2)
    assert [position.line for position in found.related] == [6, 15]
    assert found.parameters == ("model.weight2", "model.weight3")


def test_optimizers_that_a_function_makes_at_one_line_are_two():
    (found,) = pair(lines=(5, 5))
    assert (found.severity, found.location.line, found.count) == ("error", 5, 2)


def test_two_optimizers_of_the_same_parameters_are_a_warning():
    (found,) = pair(second=(0, 1, 2, 3))
    assert found.severity == "warning"


@pytest.mark.parametrize(
    "chosen",
    [
        {"second": (4, 5)},
        {"turns": True},
        {"zero_between": True},
        {"rates": (0.1, 0.0)},
        {"rates": (0.0, 0.1)},
        {"steps": 1},
    ],
    ids=["apart", "by turns", "a backward each", "second rate 0", "first rate 0", "one step"],
)
def test_optimizers_that_share_nothing_or_take_turns_are_right(chosen):
    assert not pair(**chosen)


def test_two_optimizers_step_a_shared_parameter_twice():
    parameter = torch.nn.Parameter(torch.zeros(1))
    parameter.grad = torch.ones(1)
    for _ in range(2):
        torch.optim.SGD([parameter], lr=0.1).step()
    assert parameter.item() == pytest.approx(-0.2)


@pytest.mark.parametrize(("share", "is_found"), [(0.6, True), (5 / 8, True), (0.65, False)])
def test_so_many_steps_must_use_the_same_gradients(share, is_found):
    run = Run()
    weights = run.model("model", 4)
    first, second = (
        run.optimizer(weights[:3], line=3, lr=0.1),
        run.optimizer(weights[1:], line=4, lr=0.1),
    )
    for step in range(8):
        run.zero(first, line=9)
        run.zero(second, line=10)
        run.backward(weights, line=11)
        run.step(first, line=12)
        if step < 3:
            run.zero(second, line=13)
            run.backward(weights, line=14)
        run.step(second, line=15)
    settings = Settings(select=("GS215",), thresholds={"duplicate-in-optimizer": {"share": share}})
    assert bool(judge(run.recording(), settings).findings) == is_found
