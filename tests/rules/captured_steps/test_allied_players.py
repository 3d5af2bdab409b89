"""GS720: generators and critics, with right and wrong signs and labels."""

import pytest
import torch
from torch import nn

from tests.nightly import some_on_push
from tests.rules.watching import findings_of

DETACHED = "detached"
NO_GRAD = "no_grad"


def told(tmp_path, critics_loss, generators_loss, *, fake=DETACHED, rounds=4, several=1):
    """Train a generator and a critic in turns."""
    torch.manual_seed(0)
    generator = nn.Sequential(nn.Linear(3, 16), nn.ReLU(), nn.Linear(16, 2))
    critic = nn.Sequential(nn.Linear(2, 16), nn.LeakyReLU(0.2), nn.Linear(16, 1))
    own = torch.optim.SGD(generator.parameters(), lr=1e-3)
    other = torch.optim.SGD(critic.parameters(), lr=1e-3)

    def generated():
        noise = torch.randn(16, 3)
        if fake == NO_GRAD:
            with torch.no_grad():
                return generator(noise)
        return generator(noise).detach() if fake == DETACHED else generator(noise)

    def step(optimizer, loss):
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

    def train():
        for _ in range(rounds):
            for _ in range(several):
                step(other, critics_loss(critic(torch.randn(16, 2) + 2), critic(generated())))
            step(own, generators_loss(critic(generator(torch.randn(16, 3)))))

    return [one for one in findings_of(train, tmp_path) if one.rule == "GS720"]


def usual(real, fake):
    return fake.mean() - real.mean()


def swapped(real, fake):
    return real.mean() - fake.mean()


def raised(fake):
    return -fake.mean()


def lowered(fake):
    return fake.mean()


@pytest.mark.parametrize("fake", some_on_push([DETACHED, NO_GRAD, "in the graph"], 2))
def test_a_generator_that_lowers_its_score_is_an_error(fake, tmp_path):
    (found,) = told(tmp_path, usual, lowered, fake=fake)
    assert found.severity == "error"
    assert found.message.startswith("the generator's loss lowers")


def test_a_critic_with_swapped_signs_is_an_error(tmp_path):
    (found,) = told(tmp_path, swapped, raised, several=2)
    assert found.severity == "error"
    assert found.message.startswith("the critic's loss raises")


def labelled(loss, real_label=1.0, fake_label=0.0):
    """Return a loss that gives data and generated data their labels."""

    def total(real, fake):
        wanted = loss(real, torch.full_like(real, real_label))
        return wanted + loss(fake, torch.full_like(fake, fake_label))

    return total


def as_label(loss, label):
    """Return a loss that gives generated data one label."""
    return lambda fake: loss(fake, torch.full_like(fake, label))


def of_probabilities(scores, labels):
    return nn.functional.binary_cross_entropy(torch.sigmoid(scores), labels)


LOGITS, SQUARES = nn.functional.binary_cross_entropy_with_logits, nn.functional.mse_loss

ALLIES = {
    "logits": (labelled(LOGITS), as_label(LOGITS, 0.0)),
    "probabilities": (labelled(of_probabilities, 0.9, 0.1), as_label(of_probabilities, 0.1)),
    "least squares by labels": (labelled(SQUARES), as_label(SQUARES, 0.0)),
}


@pytest.mark.parametrize("name", some_on_push(ALLIES, 2))
def test_a_generator_with_the_label_of_its_critic_is_an_error(name, tmp_path):
    (found,) = told(tmp_path, *ALLIES[name])
    assert found.severity == "error"
    assert found.message.startswith("the generator's loss lowers")
    assert found.remedy == "give the generator the other label of generated data"


def logistic(real, fake):
    return nn.functional.softplus(-real).mean() + nn.functional.softplus(fake).mean()


def hinge(real, fake):
    return torch.relu(1 - real).mean() + torch.relu(1 + fake).mean()


def by_logarithms(real, fake):
    return -(nn.functional.logsigmoid(real) + nn.functional.logsigmoid(-fake)).mean()


BY_HAND = {
    "softplus": (logistic, lambda fake: nn.functional.softplus(fake).mean()),
    "hinge": (hinge, lowered),
    "logarithms": (by_logarithms, lambda fake: -nn.functional.logsigmoid(-fake).mean()),
}


@pytest.mark.parametrize("name", some_on_push(BY_HAND, 2))
def test_a_generator_that_is_not_opposed_by_hand_is_an_error(name, tmp_path):
    (found,) = told(tmp_path, *BY_HAND[name])
    assert found.message.startswith("the generator's loss lowers")


class Reversed(torch.autograd.Function):
    """Reverses the gradient."""

    @staticmethod
    def forward(ctx, x):
        return x.view_as(x)

    @staticmethod
    def backward(ctx, gradient):
        return -gradient


def reversed_label(fake):
    return LOGITS(Reversed.apply(fake), torch.zeros_like(fake))


def squared(real, fake):
    return (real - 1).square().mean() + fake.square().mean()


def to_one(fake):
    return (fake - 1).square().mean()


PAIRS = {
    "usual": (usual, raised),
    "mirrored": (swapped, lowered),
    "least squares": (squared, to_one),
    "logistic": (logistic, lambda fake: nn.functional.softplus(-fake).mean()),
    "hinge": (hinge, raised),
    "logarithms": (by_logarithms, lambda fake: -nn.functional.logsigmoid(fake).mean()),
    "saturating": (by_logarithms, lambda fake: nn.functional.logsigmoid(-fake).mean()),
    "labels": (labelled(LOGITS), as_label(LOGITS, 1.0)),
    "smooth labels": (labelled(LOGITS, 0.9, 0.1), as_label(LOGITS, 0.9)),
    "swapped labels": (labelled(LOGITS, 0.0, 1.0), as_label(LOGITS, 0.0)),
    "minimax": (labelled(LOGITS), lambda fake: -LOGITS(fake, torch.zeros_like(fake))),
    "confusion": (labelled(LOGITS), as_label(LOGITS, 0.5)),
    "labels around zero": (labelled(SQUARES, 1.0, -1.0), as_label(SQUARES, 0.0)),
    "a reversed gradient": (labelled(LOGITS), reversed_label),
    "the same class": (labelled(LOGITS, 1.0, 1.0), as_label(LOGITS, 1.0)),
    "both scores alike": (lambda real, fake: real.mean() + fake.mean(), lowered),
}


@pytest.mark.parametrize("pair", some_on_push(PAIRS, {0, 1, 3, 4, 7, 10}))
def test_players_that_oppose_each_other_are_fine(pair, tmp_path):
    assert not told(tmp_path, *PAIRS[pair])


def test_one_turn_of_each_is_not_judged(tmp_path):
    assert not told(tmp_path, usual, lowered, rounds=1)
