import pytest
import torch
from torch.nn import functional

from gradscope.target.loading import target_from_objects

NET = """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.l = nn.Linear(3, {width})
    def forward(self, x):
        y = self.l(x)
        return {value}
batch = torch.ones(8, 3)
"""


def outcome_of(workplace, value, width=4):
    return workplace.load(NET.format(value=value, width=width)).forward()


@pytest.mark.parametrize(
    ("value", "width", "description"),
    [
        ("y", 4, "cross entropy of output and drawn classes"),
        ("y", 3, "mean squared error of output to the input"),
        ("y", 1, "mean squared error of output to drawn numbers"),
        ("y.squeeze(1)", 1, "mean squared error of output to drawn numbers"),
        ("torch.sigmoid(y)", 1, "binary cross entropy of output and drawn labels"),
        ("torch.complex(y, y)", 4, "mean of squares of output"),
        ("(y, y[:, :1])", 4,
         "cross entropy of output[0] and drawn classes + mean of squares of output[1]"),
        ("(y, (y * 2,))", 4, "cross entropy of output[0] and drawn classes"),
    ],
)  # fmt: skip
def test_form_of_the_output_decides(workplace, value, width, description):
    outcome = outcome_of(workplace, value, width)
    assert (outcome.description, outcome.synthetic) == (description, True)
    outcome.loss.backward()


@pytest.mark.parametrize("value", ["y", "F.log_softmax(y, 1)", "F.softmax(y, 1)"])
def test_logits_and_probabilities_have_the_same_cross_entropy(workplace, value):
    expected = outcome_of(workplace, "y").loss
    assert outcome_of(workplace, value).loss.item() == pytest.approx(expected.item(), rel=1e-5)


def test_drawn_targets_are_the_same_in_every_forward(workplace):
    target = workplace.load(NET.format(value="y", width=4))
    assert torch.equal(target.forward().loss, target.forward().loss)


@pytest.mark.parametrize(
    ("target", "formula"),
    [
        (torch.arange(8) % 4, functional.cross_entropy),
        (torch.randn(8, 4), functional.mse_loss),
    ],
)
def test_target_of_the_batch_is_used(target, formula):
    model = torch.nn.Linear(3, 4)
    inputs = torch.randn(8, 3)
    outcome = target_from_objects(model, (inputs, target)).forward()
    assert torch.equal(outcome.loss, formula(model(inputs), target))


def test_language_model_predicts_its_vocabulary():
    model = torch.nn.Sequential(torch.nn.Embedding(11, 6), torch.nn.Linear(6, 11))
    outcome = target_from_objects(model, torch.zeros(2, 5, dtype=torch.long)).forward()
    assert outcome.description == "cross entropy of output and drawn classes"


def test_segmentation_compares_pixels_by_class():
    model = torch.nn.Conv2d(3, 5, 3, padding=1)
    outcome = target_from_objects(model, torch.randn(2, 3, 8, 8)).forward()
    assert outcome.description == "cross entropy of output and drawn classes"
    assert 0 < outcome.loss.item() < 10


def test_half_precision_is_widened():
    model = torch.nn.Linear(3, 1).bfloat16()
    outcome = target_from_objects(model, torch.ones(4, 3, dtype=torch.bfloat16)).forward()
    assert outcome.loss.dtype == torch.float32
