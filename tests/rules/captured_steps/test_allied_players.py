"""GS720: generators and critics of Wasserstein GANs, with right and wrong signs."""

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


def squared(real, fake):
    return (real - 1).square().mean() + fake.square().mean()


def to_one(fake):
    return (fake - 1).square().mean()


PAIRS = {
    "usual": (usual, raised),
    "mirrored": (swapped, lowered),
    "least squares": (squared, to_one),
    "both scores alike": (lambda real, fake: real.mean() + fake.mean(), lowered),
}


@pytest.mark.parametrize("pair", some_on_push(PAIRS, {"usual", "mirrored"}))
def test_players_that_oppose_each_other_are_fine(pair, tmp_path):
    assert not told(tmp_path, *PAIRS[pair])


def test_one_turn_of_each_is_not_judged(tmp_path):
    assert not told(tmp_path, usual, lowered, rounds=1)
