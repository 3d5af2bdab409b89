"""GS736: probabilities of actions that rewards weigh without a logarithm."""

import pytest
import torch
from torch import nn

from tests.nightly import some_on_push
from tests.rules.inspecting import only

generator = torch.Generator().manual_seed(1)
STATES = torch.randn(32, 6, generator=generator)
actions = torch.randint(0, 3, (32,), generator=generator)
rewards = torch.rand(32, generator=generator)
advantage = rewards - rewards.mean()
propensity = torch.rand(32, generator=generator) + 0.1
weighted_rewards = rewards / propensity
rows = torch.arange(32)


def policy():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.Linear(16, 3), nn.Softmax(1))


def chosen(probs):
    return probs.gather(1, actions[:, None]).squeeze(1)


def one_step(probs):
    prob, R = probs[0][actions[0]], 0.7
    return -prob * R


def all_actions(probs):
    returns = [0.2, 0.7, 0.1]
    return -sum(probs[0, action] * returns[action] for action in range(3))


SICK = {
    "gathered": lambda probs: -(chosen(probs) * advantage).mean(),
    "indexed": lambda probs: (-probs[rows, actions] * rewards).sum(),
    "one step": one_step,
}

HEALTHY = {
    "logarithm": lambda probs: -(chosen(probs).log() * advantage).mean(),
    "logarithm beside a clamp": lambda probs: (
        -(probs[rows, actions].clamp(1e-6).log() * rewards).sum()
    ),
    "corrected": lambda probs: -(chosen(probs) * (rewards / propensity)).mean(),
    "corrected before": lambda probs: -(chosen(probs) * weighted_rewards).mean(),
    "ratio": lambda probs: -(chosen(probs) / propensity * advantage).mean(),
    "expectation": lambda probs: -(probs * rewards[:, None]).sum(1).mean(),
    "all actions": all_actions,
    "no reward": lambda probs: -(chosen(probs) * propensity).mean(),
}


@pytest.mark.parametrize("name", SICK)
def test_a_probability_that_a_reward_weighs_is_a_warning(findings_of, name):
    found = only(findings_of(policy(), STATES, lambda model, x: SICK[name](model(x))), "GS736")
    assert found.severity == "warning"
    assert found.location.file.endswith("test_probability_as_likelihood.py")


@pytest.mark.parametrize("name", some_on_push(HEALTHY, {0, 2, 4, 5, 6}))
def test_likelihoods_and_expectations_are_fine(findings_of, name):
    found = findings_of(policy(), STATES, lambda model, x: HEALTHY[name](model(x)))
    assert not [one for one in found if one.rule == "GS736"]


labels = torch.randint(0, 3, (32,), generator=generator)
keys = nn.functional.normalize(torch.randn(32, 3, generator=generator), dim=1)
same_label = labels[:, None] == labels


def scores():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.Linear(16, 3))


def similar(out):
    return nn.functional.normalize(out, dim=1) @ keys.t() / 0.1


def picked(out):
    return out.softmax(1).gather(1, labels[:, None]).squeeze(1)


def both_directions(out):
    logits = similar(out)
    return -(logits.softmax(1).diagonal().mean() + logits.softmax(0).diagonal().mean()) / 2


def by_exponentials(out):
    powers = similar(out).exp()
    return -(torch.diag(powers) / powers.sum(1)).mean()


def with_positives_apart(out):
    out = nn.functional.normalize(out, dim=1)
    positive = ((out * keys).sum(1) / 0.1).exp()
    negative = (out @ keys.roll(1, 0).t() / 0.1).exp().sum(1)
    return -(positive / (positive + negative)).mean()


WITHOUT_LOGARITHM = {
    "classes": lambda out: -picked(out).mean(),
    "indexed": lambda out: -(out.softmax(1)[rows, labels].sum() / 32),
    "contrastive": lambda out: -similar(out).softmax(1).diagonal().mean(),
    "both directions": both_directions,
    "exponentials": by_exponentials,
    "positives apart": with_positives_apart,
}

LIKELIHOODS = {
    "logarithm": lambda out: -picked(out).log().mean(),
    "logarithm of the quotient": lambda out: (
        -torch.log(torch.diag(similar(out).exp()) / similar(out).exp().sum(1)).mean()
    ),
    "absolute error": lambda out: (1 - picked(out)).mean(),
    "absolute error of the mean": lambda out: 1 - picked(out).mean(),
    "generalised": lambda out: ((1 - picked(out) ** 0.7) / 0.7).mean(),
    "all of a class": lambda out: -(similar(out).softmax(1) * same_label).sum(1).mean(),
    "a mask": lambda out: -similar(out).softmax(1)[same_label].mean(),
    "beside the cross-entropy": lambda out: (
        nn.functional.cross_entropy(out, labels) - 0.1 * picked(out).mean()
    ),
    "weighed": lambda out: -(picked(out) * propensity).mean(),
    "unlearned": lambda out: picked(out).mean(),
    "scores": lambda out: -out.gather(1, labels[:, None]).mean(),
}


@pytest.mark.parametrize("name", some_on_push(WITHOUT_LOGARITHM, {0, 3, 4}))
def test_a_mean_of_probabilities_is_a_warning(findings_of, name):
    loss = WITHOUT_LOGARITHM[name]
    found = only(findings_of(scores(), STATES, lambda model, x: loss(model(x))), "GS736")
    assert found.severity == "warning"


@pytest.mark.parametrize("name", some_on_push(LIKELIHOODS, {0, 2, 5, 7, 8}))
def test_likelihoods_and_robust_errors_are_fine(findings_of, name):
    found = findings_of(scores(), STATES, lambda model, x: LIKELIHOODS[name](model(x)))
    assert not [one for one in found if one.rule == "GS736"]


class Deceiver(nn.Module):
    """A generator whose outputs a frozen classifier is to take for a class."""

    def __init__(self):
        super().__init__()
        self.generator, self.classifier = scores(), nn.Linear(3, 3)
        self.classifier.requires_grad_(False)

    def forward(self, x):
        return self.classifier(self.generator(x))


def test_a_generator_that_a_frozen_classifier_judges_is_fine(findings_of):
    loss = WITHOUT_LOGARITHM["classes"]
    found = findings_of(Deceiver(), STATES, lambda model, x: loss(model(x)))
    assert not [one for one in found if one.rule == "GS736"]
