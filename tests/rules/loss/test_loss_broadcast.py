"""GS702: shapes that grow by mistake, and pairs that are meant."""

import inspect

import pytest
import torch
from torch import nn
from torch.nn import functional

from tests.nightly import some_on_push
from tests.rules.inspecting import only

X = torch.randn(20, 8, generator=torch.Generator().manual_seed(1))
Y = torch.rand(20, generator=torch.Generator().manual_seed(2))


def found(findings) -> list[str]:
    return [finding.severity for finding in findings if finding.rule == "GS702"]


def squared(output, target):
    return ((output - target) ** 2).mean()


def absolute(output, target):
    return torch.abs(target - output).sum() / len(target)


def log_likelihood(output, target):
    p = output.sigmoid()
    return -(target * p.log() + (1 - target) * (1 - p).log()).mean()


def weighted(output, target):
    return (target * functional.softplus(output)).mean()


BROADCASTING = [
    squared,
    absolute,
    log_likelihood,
    weighted,
    nn.MSELoss(),
    nn.L1Loss(),
    functional.smooth_l1_loss,
    functional.huber_loss,
    functional.poisson_nll_loss,
]


@pytest.mark.filterwarnings("ignore:Using a target size")
@pytest.mark.parametrize("loss", some_on_push(BROADCASTING, 3))
def test_column_against_row_is_an_error(findings_of, loss):
    column, row = nn.Linear(8, 1), nn.Sequential(nn.Linear(8, 1), nn.Flatten(0))
    assert set(found(findings_of(column, (X, Y), loss))) == {"error"}
    assert set(found(findings_of(row, (X, Y[:, None]), loss))) == {"error"}


@pytest.mark.parametrize("loss", some_on_push(BROADCASTING, 3))
def test_equal_shapes_are_not_found(findings_of, loss):
    column, row = nn.Linear(8, 1), nn.Sequential(nn.Linear(8, 1), nn.Flatten(0))
    assert found(findings_of(column, (X, Y[:, None]), loss)) == []
    assert found(findings_of(row, (X, Y), loss)) == []


@pytest.mark.parametrize("rows", [1, 2])
def test_one_row_cannot_grow(findings_of, rows):
    assert len(found(findings_of(nn.Linear(8, 1), (X[:rows], Y[:rows]), squared))) == rows - 1


def test_shapes_and_line_are_told(findings_of):
    finding = only(findings_of(nn.Linear(8, 1), (X, Y), squared), "GS702")
    assert finding.location.line == inspect.getsourcelines(squared)[1] + 1
    evidence = dict(finding.evidence)
    assert evidence["pairs"] == 400
    assert evidence["pairs_meant"] == 20
    assert evidence["result"] == "[20, 20]"
    assert "squeeze(-1)` on the first" in finding.remedy


def test_images_without_their_channel_are_found(findings_of):
    model = nn.Conv2d(1, 1, 3, padding=1)
    images = torch.rand(4, 1, 5, 5)
    finding = only(findings_of(model, (images, images[:, 0]), squared), "GS702")
    assert dict(finding.evidence)["result"] == "[4, 4, 5, 5]"
    assert "squeeze(1)` on the first" in finding.remedy


def expanded_target(output, target):
    bonus = torch.ones(len(target), 1)
    goal = target + 0.9 * (bonus * target)
    return functional.smooth_l1_loss(output, goal)


def expanded_by_hand(output, target):
    with torch.no_grad():
        weight = (target - output).detach()
    return (output[:, 0] * (0.5 * weight)).mean()


def given_expanded(output, target):
    return functional.huber_loss(output, target.expand(len(target), -1))


@pytest.mark.filterwarnings("ignore:Using a target size")
@pytest.mark.parametrize("loss", [expanded_target, expanded_by_hand])
def test_target_that_was_expanded_before_is_found_at_its_line(findings_of, loss):
    finding = only(findings_of(nn.Linear(8, 1), (X, Y), loss), "GS702")
    first = inspect.getsourcelines(loss)[1]
    assert (finding.severity, finding.location.line) == ("error", first + 2)
    assert [one.line for one in finding.related] == [first + 3]
    assert dict(finding.evidence)["pairs"] == 400


@pytest.mark.filterwarnings("ignore:Using a target size")
def test_expanded_target_of_unknown_origin_is_found_at_the_loss(findings_of):
    finding = only(findings_of(nn.Linear(8, 1), (X, Y), given_expanded), "GS702")
    assert finding.location.line == inspect.getsourcelines(given_expanded)[1] + 1
    assert not finding.related


def pairs_meant_before(output, target):
    distance = target[:, None] - target * torch.ones(len(target), 1)
    return (output * distance).mean() + functional.mse_loss(output[:, 0], target)


def costs_given(output, target):
    costs = torch.cdist(target[:, None], target[:, None])
    return (output - costs).relu().mean()


def wider_target(output, target):
    ahead = target + 0.1 * torch.ones(3, 1)
    return functional.mse_loss(output[:3].T.expand(3, -1), ahead[:, :3])


@pytest.mark.parametrize("loss", [pairs_meant_before, costs_given, wider_target])
def test_tables_of_targets_are_not_found(findings_of, loss):
    assert found(findings_of(nn.Linear(8, 1), (X, Y), loss)) == []


def pairs_of_outputs(output, target):
    return (output - output.squeeze(1)).abs().mean() + functional.mse_loss(output[:, 0], target)


def pairs_by_none(output, target):
    return (output[:, 0][:, None] - target).abs().mean()


def pairs_by_unsqueeze(output, target):
    values = output[:, 0].unsqueeze(1)
    return (values - target).abs().mean()


WEIGHTS = torch.rand(20, generator=torch.Generator().manual_seed(5))


def weighted_squares(output, target):
    return (WEIGHTS * (output - target[:, None]) ** 2).mean()


def weighted_entropy(output, target):
    error = functional.binary_cross_entropy_with_logits
    return (WEIGHTS * error(output, target.unsqueeze(1), reduction="none")).mean()


def beside_another_term(output, target):
    return (output - target).abs().mean() + 0.1 * (output * 0.5 + target[:, None]).mean() ** 2


@pytest.mark.parametrize(
    "loss", some_on_push([weighted_squares, weighted_entropy, beside_another_term], 2)
)
def test_a_dimension_for_something_else_on_the_line_is_no_excuse(findings_of, loss):
    assert found(findings_of(nn.Linear(8, 1), (X, Y), loss)) == ["error"]


def pairs_of_shifted(output, target):
    return (target * (output[:, 0][:, None] - output.detach().mean())).abs().mean()


def pairs_of_magnitudes(output, target):
    return (WEIGHTS * (2 * output[:, 0].abs().unsqueeze(1))).mean()


def pairs_of_data(output, target):
    return ((target[:, None] - target.mean()) * output[:, 0]).abs().mean()


def bins(output, target):
    edges = torch.linspace(0, 1, 7)
    soft = torch.exp(-((output - edges) ** 2)).mean(0)
    return soft.square().sum()


def row_of_means(output, target):
    return ((output - output.detach().mean(0)) ** 2).mean() + output.mean() * target.mean()


def quantiles(output, target):
    levels = torch.linspace(0.1, 0.9, 8)
    error = target[:, None] - output.expand(-1, 8)
    return torch.maximum(levels * error, (levels - 1) * error).mean()


def kernel_between_samples(output, target):
    scores = torch.softmax(-((output - target) ** 2), dim=1)
    return -(scores @ target).mean()


def logged_only(output, target):
    with torch.no_grad():
        _ = ((output - target) ** 2).mean()
    return functional.mse_loss(output[:, 0], target)


@pytest.mark.parametrize(
    "loss",
    some_on_push(
        [
            pairs_of_outputs,
            pairs_by_none,
            pairs_by_unsqueeze,
            pairs_of_shifted,
            pairs_of_magnitudes,
            pairs_of_data,
            bins,
            row_of_means,
            quantiles,
            kernel_between_samples,
            logged_only,
        ],
        3,
    ),
)
def test_pairs_that_are_meant_are_not_found(findings_of, loss):
    assert found(findings_of(nn.Linear(8, 1), (X, Y), loss)) == []


def test_classes_of_cross_entropy_are_no_broadcast(findings_of):
    model = nn.Conv1d(1, 1, 1)
    batch = torch.randn(4, 1, 6), torch.zeros(4, 6, dtype=torch.long)
    assert found(findings_of(model, batch, functional.cross_entropy)) == []


class Rewards(nn.Module):
    """Scores of two inputs, by one layer; `narrow` is done to the second ones."""

    def __init__(self, narrow):
        super().__init__()
        torch.manual_seed(0)
        self.layer, self.narrow = nn.Linear(8, 1), narrow

    def forward(self, x):
        return self.layer(x), self.narrow(self.layer(x.flip(0)))


@pytest.mark.parametrize(
    ("narrow", "loss", "expected"),
    [
        (lambda x: x.squeeze(-1), lambda a, b: -functional.logsigmoid(a - b).mean(), ["error"]),
        (lambda x: x, lambda a, b: -functional.logsigmoid(a - b).mean(), []),
        (lambda x: x.squeeze(-1), lambda a, b: (a.view(-1, 1) - b).square().mean(), []),
        (lambda x: x.squeeze(-1), lambda a, b: (b.unsqueeze(1) - b).square().mean(), []),
        (lambda x: x.squeeze(-1), lambda a, b: (a - b).softmax(1).log().mean(), []),
    ],
    ids=["squeezed", "both columns", "viewed", "unsqueezed", "over rows"],
)
def test_two_outputs_of_which_one_lost_a_dimension(findings_of, narrow, loss, expected):
    told = findings_of(Rewards(narrow), (X, Y), lambda output, _: loss(*output))
    assert found(told) == expected
