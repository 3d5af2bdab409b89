import pytest
import torch

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
