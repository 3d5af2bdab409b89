"""What chance or a single example leaves without a gradient is neither dead nor unused."""

import random

import pytest
import torch
from torch import nn
from torch.nn import functional

from tests.nightly import some_on_push

X = torch.randn(16, 8, generator=torch.Generator().manual_seed(1))
CLASSES = torch.arange(16) % 4


class Sampled(nn.Module):
    """Takes one of its layers at random, by a mask or by calling no other."""

    def __init__(self, *, masks: bool):
        super().__init__()
        self.layers, self.head = nn.ModuleList(nn.Linear(8, 8) for _ in range(4)), nn.Linear(8, 4)
        self.masks = masks

    def forward(self, x):
        if not self.masks:
            return self.head(random.choice(self.layers)(x))
        chosen = functional.one_hot(torch.randint(4, ()), 4)
        return self.head(
            sum(one * layer(x) for one, layer in zip(chosen, self.layers, strict=True))
        )


class Heads(nn.Module):
    """Makes as many predictions as tasks, of which the loss takes one at random."""

    def __init__(self):
        super().__init__()
        self.heads = nn.ModuleList(nn.Linear(8, 4) for _ in range(3))

    def forward(self, x):
        return [head(x) for head in self.heads]


def loss_of_one_task(output, target):
    return functional.cross_entropy(random.choice(output), target)


MODELS = {
    "path by a mask": (lambda: Sampled(masks=True), functional.cross_entropy),
    "path by a call": (lambda: Sampled(masks=False), functional.cross_entropy),
    "task": (Heads, loss_of_one_task),
    "dropout": (
        lambda: nn.Sequential(nn.Linear(8, 4), nn.Dropout(0.9), nn.Linear(4, 4)),
        lambda output, target: (output[:1] - target[:1]).square().sum(),
    ),
}


@pytest.mark.parametrize(("build", "loss"), MODELS.values(), ids=MODELS)
@pytest.mark.parametrize("seed", range(3))
def test_what_another_draw_lets_learn_is_no_finding(findings_of, build, loss, seed):
    torch.manual_seed(seed)
    random.seed(seed)
    assert [one.rule for one in findings_of(build(), (X, CLASSES), loss)] == []


def test_what_no_draw_lets_learn_is_found(inspect_file):
    report = inspect_file(
        """
        import random
        import torch
        from torch import nn

        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                self.layers = nn.ModuleList(nn.Linear(8, 8) for _ in range(3))
                self.dead, self.aside, self.head = (nn.Linear(8, 8) for _ in range(3))

            def forward(self, x):
                self.aside(x)
                x = nn.functional.dropout(x, 0.1) + torch.round(self.dead(x))
                return self.head(random.choice(self.layers)(x))

        def build_model():
            return Net()

        def build_batch():
            return torch.randn(16, 8)

        def loss_fn(output, batch):
            return output.square().mean()
    """.replace("\n        ", "\n")
    )
    found = {one.rule: one.parameters for one in report.findings}
    assert found["GS204"] == ("dead.weight", "dead.bias")
    assert found["GS203"] == ("aside.weight", "aside.bias")


class Pairs(nn.Module):
    def __init__(self):
        super().__init__()
        self.left, self.right = nn.Linear(8, 4), nn.Linear(8, 4)

    def forward(self, x):
        left, right = self.left(x), self.right(x.flip(1))
        return functional.cross_entropy(left @ right.T, torch.arange(len(x)))


@pytest.mark.parametrize(
    ("examples", "expected"), some_on_push([(1, ["warning"]), (2, []), (16, [])], {0, 1})
)
def test_a_single_example_proves_no_dead_layer(findings_of, examples, expected):
    found = findings_of(Pairs(), X[:examples])
    assert [one.severity for one in found] == expected
    assert all(one.remedy.startswith("use a batch of several examples") for one in found)
    assert all(one.message.endswith("for the batch's only example") for one in found)


@pytest.mark.parametrize("examples", [1, 16])
def test_zeros_of_any_values_are_an_error_with_a_single_example_too(findings_of, examples):
    model = nn.Sequential(nn.Linear(8, 8), Rounding(), nn.Linear(8, 4))
    (found,) = findings_of(model, (X[:examples], CLASSES[:examples]), functional.cross_entropy)
    assert (found.rule, found.severity) == ("GS204", "error")


class Rounding(nn.Module):
    def forward(self, x):
        return torch.round(3 * x)
