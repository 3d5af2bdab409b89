"""Scripts that call backward and never step: judged as one step is, and not accused wrongly."""

import pytest
import torch
from torch import nn
from torch.nn import functional

import gradscope
from gradscope.recording.norm_table import norms_of
from tests.nightly import some_on_push
from tests.rules.watching import findings_of


def stack(std, depth=20):
    model = nn.Sequential(*(nn.Linear(10, 10) for _ in range(depth)))
    for layer in model:
        nn.init.normal_(layer.weight, 0, std)
    return model


def backward(model, width=10):
    model(torch.randn(32, width)).pow(2).mean().backward()


def without_optimizer():
    backward(stack(1.0))


def with_one_that_never_steps():
    model = stack(1.0)
    torch.optim.SGD(model.parameters(), lr=0.1)
    backward(model)


def one_seed_after_the_other():
    for seed in range(6):
        torch.manual_seed(seed)
        backward(stack(1.0))


def one_batch_after_the_other():
    model = stack(1.0)
    for _ in range(6):
        backward(model)


@pytest.mark.parametrize(
    "loop",
    some_on_push(
        [
            without_optimizer,
            with_one_that_never_steps,
            one_seed_after_the_other,
            one_batch_after_the_other,
        ],
        {0, 2},
    ),
)
def test_a_gradient_that_explodes_is_found_without_a_step(loop, tmp_path):
    torch.manual_seed(0)
    (found,) = findings_of(loop, tmp_path)
    assert (found.rule, found.severity) == ("GS101", "error")


@pytest.mark.nightly
def test_of_different_models_at_one_line_the_sick_one_is_found(tmp_path):
    def compare_initialisations():
        for std in (0.32, 1.0):
            backward(stack(std))

    torch.manual_seed(0)
    (found,) = findings_of(compare_initialisations, tmp_path)
    assert found.rule == "GS101"
    assert all(name.startswith("model#2") for name in found.parameters), found.parameters


def cut_off():
    model = nn.ModuleList([nn.Linear(8, 8), nn.Linear(8, 1)])
    hidden = model[0](torch.randn(16, 8)).relu().detach()
    model[1](hidden).pow(2).mean().backward()


def not_finite():
    layer = nn.Linear(8, 1)
    (layer(torch.zeros(16, 8)) - layer.bias).sqrt().sum().backward()


@pytest.mark.parametrize(("loop", "rule"), [(cut_off, "GS201"), (not_finite, "GS103")])
def test_what_one_step_shows_is_found(loop, rule, tmp_path):
    assert [one.rule for one in findings_of(loop, tmp_path)] == [rule]


def test_dead_units_are_found(tmp_path):
    def dead():
        model = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 4))
        nn.init.constant_(model[0].bias, -50.0)
        model[0].bias.data[0] = 50.0
        functional.cross_entropy(model(torch.randn(128, 8)), torch.arange(128) % 4).backward()

    torch.manual_seed(0)
    assert [one.rule for one in findings_of(dead, tmp_path)] == ["GS105"]


class Classifier(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Conv2d(8, 16, 3), nn.ReLU()
        )
        self.head, self.aux = nn.Linear(16, 5), nn.Linear(16, 5)

    def forward(self, x):
        hidden = self.body(x).mean((2, 3))
        return (self.head(hidden), self.aux(hidden)) if self.training else self.head(hidden)


def saliency():
    model = Classifier().eval()
    image = torch.randn(1, 3, 12, 12, requires_grad=True)
    scores = model(image)
    scores[0, scores.argmax()].backward()


def attack():
    model = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Dropout(), nn.Linear(128, 10)).eval()
    x, y = torch.rand(100, 64), torch.randint(0, 10, (100,))
    for _ in range(10):
        x = x.detach().requires_grad_()
        functional.cross_entropy(model(x), y).backward()
        x = x + 0.01 * x.grad.sign()


def dream():
    model = Classifier().eval()
    model(torch.zeros(1, 3, 12, 12))
    image = torch.zeros(1, 3, 12, 12).normal_(0, 0.1).requires_grad_()
    for _ in range(10):
        model.body(image)[:, 4].mean().backward()
        image.data += 0.1 * image.grad / (image.grad.norm() + 1e-8)
        image.grad.zero_()


def grad_cam():
    model, kept = Classifier().eval(), []
    model.body.register_forward_hook(lambda _, given, out: (kept.append(out), out.retain_grad())[0])
    for _ in range(3):
        model.zero_grad()
        model(torch.randn(1, 3, 12, 12)).max().backward()


def fisher_information():
    model = nn.Sequential(nn.Linear(20, 64), nn.ReLU(), nn.Linear(64, 5)).eval()
    for _ in range(20):
        model.zero_grad()
        scores = functional.log_softmax(model(torch.randn(8, 20)), 1)
        functional.nll_loss(scores, scores.argmax(1)).backward()


def forces():
    model = nn.Sequential(nn.Linear(1, 32), nn.Tanh(), nn.Linear(32, 1))
    position = torch.randn(16, 3, requires_grad=True)
    distance = torch.cdist(position, position) + torch.eye(16)
    model(distance.reshape(-1, 1)).sum().backward()


def penalty():
    critic = nn.Sequential(nn.Linear(8, 32), nn.LeakyReLU(), nn.Linear(32, 1))
    x = torch.randn(64, 8, requires_grad=True)
    (slope,) = torch.autograd.grad(critic(x).sum(), x, create_graph=True)
    ((slope.norm(dim=1) - 1) ** 2).mean().backward()


def frozen_backbone():
    backbone = nn.Sequential(nn.Linear(16, 32), nn.ReLU()).requires_grad_(False)
    head = nn.Linear(32, 3)
    functional.cross_entropy(head(backbone(torch.randn(64, 16))), torch.arange(64) % 3).backward()


def smoke_test():
    layer = nn.TransformerEncoderLayer(32, 4, 64, batch_first=True)
    model = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
    model(torch.randn(4, 10, 32)).pow(2).sum().backward()


def tensors_alone():
    x = torch.randn(3, requires_grad=True)
    y = x * 2
    while y.detach().norm() < 1000:
        y = y * 2
    y.backward(torch.tensor([0.1, 1.0, 0.0001]))
    w, v = torch.randn(10, 10, requires_grad=True), torch.randn(10)
    for _ in range(8):
        v = torch.tanh(w @ v)
    v.sum().backward()


def good_initialisations():
    for seed in range(6):
        torch.manual_seed(seed)
        model = nn.Sequential(*(nn.Linear(64, 64) if i % 2 == 0 else nn.ReLU() for i in range(13)))
        for layer in model[::2]:
            nn.init.kaiming_normal_(layer.weight, nonlinearity="relu")
        functional.cross_entropy(model(torch.randn(128, 64)), torch.arange(128) % 10).backward()


HEALTHY = (
    saliency,
    attack,
    dream,
    grad_cam,
    fisher_information,
    forces,
    penalty,
    frozen_backbone,
    smoke_test,
    tensors_alone,
    good_initialisations,
)


@pytest.mark.parametrize("loop", some_on_push(HEALTHY, 6), ids=[loop.__name__ for loop in HEALTHY])
def test_gradients_that_are_only_looked_at_are_not_accused(loop, tmp_path):
    torch.manual_seed(0)
    found = findings_of(loop, tmp_path)
    assert [(one.rule, one.message) for one in found if one.severity != "note"] == []


def test_the_norms_are_those_that_backward_left():
    torch.manual_seed(0)
    model = Classifier().eval()
    with gradscope.watch() as watch:
        functional.cross_entropy(model(torch.randn(4, 3, 12, 12)), torch.arange(4)).backward()
    recording = watch.report().recording
    norms = norms_of(recording)
    found = dict(
        zip((recording.parameters[i].name for i in norms.parameters), norms.gradients, strict=True)
    )
    for name, parameter in model.named_parameters():
        if parameter.grad is None:
            assert found[f"model.{name}"] < 0
        else:
            assert found[f"model.{name}"] == pytest.approx(parameter.grad.norm().item(), rel=1e-6)
