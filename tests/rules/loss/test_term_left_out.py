"""GS732: terms that are computed and left out of the loss."""

import math

import pytest
import torch
from torch import nn
from torch.nn import functional

from tests.nightly import some_on_push
from tests.rules.watching import findings_of

X = torch.randn(32, 6, generator=torch.Generator().manual_seed(1))
Y = X.argmax(1) % 3


class Penalised(nn.Module):
    """Returns logits and a penalty of its hidden units, and keeps other numbers."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(2)
        self.body, self.head = nn.Linear(6, 8), nn.Linear(8, 3)
        self.last_penalty = self.mean = None

    def forward(self, x):
        hidden = torch.tanh(self.body(x))
        self.last_penalty, self.mean = hidden.square().mean(), hidden.mean()
        return self.head(hidden), hidden.abs().mean()


def returned(model):
    logits, sparsity_loss = model(X)  # noqa: RUF059 - the name tells that it is a term
    model.last_penalty = None
    return functional.cross_entropy(logits, Y)


def kept(model):
    logits, _ = model(X)
    return functional.cross_entropy(logits, Y)


def added(model):
    logits, sparsity_loss = model(X)
    return functional.cross_entropy(logits, Y) + sparsity_loss + model.last_penalty


def without_weight(model):
    logits, sparsity_loss = model(X)
    return functional.cross_entropy(logits, Y) + 0 * sparsity_loss + 0 * model.last_penalty


def other_names(model):
    logits, sparsity = model(X)
    del model.last_penalty
    return functional.cross_entropy(logits, Y) + 0 * sparsity


def logged(model):
    logits, sparsity_loss = model(X)
    model.last_penalty = model.last_penalty.detach()
    return functional.cross_entropy(logits, Y) + sparsity_loss


def told(tmp_path, loss):
    def train():
        model = Penalised()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for _ in range(6):
            optimizer.zero_grad()
            loss(model).backward()
            optimizer.step()

    return [one for one in findings_of(train, tmp_path) if one.rule == "GS732"]


@pytest.mark.parametrize(
    ("loss", "name"), [(returned, "sparsity_loss"), (kept, "self.last_penalty")]
)
def test_term_that_the_loss_lacks_is_a_warning_at_the_loss(tmp_path, loss, name):
    (found,) = told(tmp_path, loss)
    assert (found.severity, dict(found.evidence)["term"]) == ("warning", name)
    assert found.location.source == "return functional.cross_entropy(logits, Y)"
    assert len(found.related) == 1


@pytest.mark.parametrize("loss", some_on_push([added, without_weight, other_names, logged], 2))
def test_terms_of_the_loss_and_other_numbers_are_fine(tmp_path, loss):
    assert not told(tmp_path, loss)


def test_terms_with_a_backward_each_are_fine(tmp_path):
    def train():
        model = Penalised()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for _ in range(6):
            optimizer.zero_grad()
            logits, sparsity_loss = model(X)
            functional.cross_entropy(logits, Y).backward(retain_graph=True)
            sparsity_loss.backward(retain_graph=True)
            model.last_penalty.backward()
            optimizer.step()

    assert not [one for one in findings_of(train, tmp_path) if one.rule == "GS732"]


def test_it_is_found_in_models(findings_of):
    def loss(output, target):
        return functional.cross_entropy(output[0], target)

    found = [one for one in findings_of(Penalised(), (X, Y), loss) if one.rule == "GS732"]
    assert [dict(one.evidence)["term"] for one in found] == ["self.last_penalty"]


def replaced(model):
    model.last_penalty = None
    loss = 0.1 * model(X)[1]
    loss = functional.cross_entropy(model(X)[0], Y)
    model.last_penalty = None
    return loss


def discarded(model):
    logits, penalty = model(X)
    model.last_penalty = None
    loss = functional.cross_entropy(logits, Y)
    loss + 0.1 * penalty
    return loss


def unread(model):
    logits, magnitude = model(X)
    model.last_penalty = None
    kl = magnitude * 0.1  # noqa: F841
    return functional.cross_entropy(logits, Y)


LOST = {
    replaced: ("loss", "loss = 0.1 * model(X)[1]"),
    discarded: ("loss", "loss + 0.1 * penalty"),
    unread: ("kl", "return functional.cross_entropy(logits, Y)"),
}


@pytest.mark.parametrize("loss", LOST)
def test_a_term_that_the_statements_around_the_loss_drop_is_found(tmp_path, loss):
    found = {dict(one.evidence)["term"]: one for one in told(tmp_path, loss)}
    name, source = LOST[loss]
    assert found[name].severity == "warning"
    assert found[name].location.source == source


def added_in_place(model):
    logits, magnitude = model(X)
    model.last_penalty = None
    loss = 0.1 * magnitude
    loss += functional.cross_entropy(logits, Y)
    return loss


def read_between(model):
    logits, magnitude = model(X)
    model.last_penalty = None
    loss = 0.1 * magnitude
    total = loss
    loss = functional.cross_entropy(logits, Y)
    return loss + total


def of_a_branch(model):
    logits, magnitude = model(X)
    model.last_penalty = None
    loss = magnitude
    if magnitude > 0:
        loss = functional.cross_entropy(logits, Y)
    return loss


def printed(model):
    logits, magnitude = model(X)
    model.last_penalty = None
    kl = magnitude * 0.1
    model.text = f"{kl}"
    return functional.cross_entropy(logits, Y)


def without_gradient(model):
    logits, magnitude = model(X)
    model.last_penalty = None
    loss = torch.zeros(())
    reg = magnitude.detach() * 0.1  # noqa: F841
    loss = functional.cross_entropy(logits, Y)
    return loss


def as_numbers(model):
    logits, magnitude = model(X)
    model.last_penalty = None
    loss = (magnitude * 0.1).item()
    train_loss = functional.cross_entropy(logits, Y).item()  # noqa: F841
    loss = functional.cross_entropy(logits, Y)
    return loss


def read_in_a_function(model):
    logits, magnitude = model(X)
    model.last_penalty = None
    kl = magnitude * 0.1
    model.read = lambda: kl.item()
    return functional.cross_entropy(logits, Y)


FINE = [
    added_in_place,
    read_between,
    of_a_branch,
    printed,
    without_gradient,
    read_in_a_function,
    as_numbers,
]


@pytest.mark.parametrize("loss", some_on_push(FINE, 2))
def test_terms_that_something_reads_are_fine(tmp_path, loss):
    assert not told(tmp_path, loss)


class Scaling(nn.Module):
    """Scales half of its inputs by functions of the other half, and moves them."""

    def __init__(self, scale):
        super().__init__()
        torch.manual_seed(3)
        self.layers = nn.ModuleList(nn.Linear(3, 6) for _ in range(2))
        self.scale = scale

    def forward(self, x):
        total = 0.0
        for layer in self.layers:
            kept, moved = x.chunk(2, 1)
            log_scale, shift = layer(kept).chunk(2, 1)
            log_scale = self.scale(log_scale)
            total = total + log_scale.sum(1)
            x = torch.cat([moved * log_scale.exp() + shift, kept], 1)
        return x, total


STANDARD = torch.distributions.Normal(torch.zeros(6), torch.ones(6))
CONSTANT = 3 * math.log(2 * math.pi)
FLOWS = {
    "of torch": (lambda z, total: -STANDARD.log_prob(z).sum(1).mean(), torch.tanh, 1),
    "by hand": (lambda z, total: (0.5 * z.pow(2).sum(1) + CONSTANT).mean(), torch.tanh, 1),
    "with the determinant": (
        lambda z, total: -(STANDARD.log_prob(z).sum(1) + total).mean(),
        torch.tanh,
        0,
    ),
    "of the same volume": (
        lambda z, total: -STANDARD.log_prob(z).sum(1).mean(),
        lambda s: s - s.mean(1, keepdim=True),
        0,
    ),
    "of a target": (
        lambda z, total: -torch.distributions.Normal(X, 1.0).log_prob(z).sum(1).mean(),
        torch.tanh,
        0,
    ),
    "a penalty of outputs": (lambda z, total: z.pow(2).mean(), torch.tanh, 0),
    "beside an error": (
        lambda z, total: (z - X).abs().mean() - STANDARD.log_prob(z).mean(),
        torch.tanh,
        0,
    ),
}


@pytest.mark.parametrize("name", some_on_push(FLOWS, 2))
def test_a_flow_without_its_determinant_is_found(findings_of, name):
    loss, scale, count = FLOWS[name]
    findings = findings_of(Scaling(scale), X, lambda output, batch: loss(*output))
    found = [one for one in findings if one.rule == "GS732"]
    assert [dict(one.evidence)["term"] for one in found] == ["the log-determinant"] * count


def test_a_determinant_without_gradient_is_named_at_its_cut(findings_of):
    def loss(output, batch):
        z, total = output
        constant = total.detach()  # here
        return -(STANDARD.log_prob(z).sum(1) + constant).mean()

    (found,) = [one for one in findings_of(Scaling(torch.tanh), X, loss) if one.rule == "GS732"]
    assert "has no gradient" in found.message
    assert found.location.source.startswith("constant = total.detach()")
