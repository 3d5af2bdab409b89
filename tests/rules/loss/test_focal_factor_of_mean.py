"""GS723: focal factors of a mean loss, and factors of each example."""

import pytest
import torch
from torch import nn
from torch.nn import functional

import gradscope
from tests.nightly import some_on_push

G = torch.Generator().manual_seed(3)
FEATURES = torch.randn(24, 6, generator=G)
CLASSES = torch.randint(0, 3, (24,), generator=G)
LABELS = functional.one_hot(CLASSES, 3).float()


def told(loss, features=FEATURES):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.Linear(16, 3))
    found = gradscope.inspect(model, features, loss).findings
    return [one for one in found if one.rule == "GS723"]


def by_name(output):
    entropy = functional.cross_entropy(output, CLASSES)
    p = torch.exp(-entropy)
    return (0.25 * (1 - p) ** 2.0 * entropy).mean()


def with_module(output):
    entropy = nn.CrossEntropyLoss()(output, CLASSES)
    return entropy * (1 - (-entropy).exp()).pow(1.5)


def binary(output):
    entropy = functional.binary_cross_entropy_with_logits(output, LABELS)
    return 0.5 * entropy * (1 - torch.exp(-entropy)) + 0.01 * output.square().mean()


MEANS = {"by name": by_name, "with module": with_module, "binary": binary}


@pytest.mark.parametrize("name", some_on_push(MEANS, 2))
def test_factor_of_a_mean_is_a_warning(name):
    (found,) = told(MEANS[name])
    assert found.severity == "warning"
    assert "entropy = " in found.location.source


def of_examples(output):
    entropy = functional.cross_entropy(output, CLASSES, reduction="none")
    return ((1 - torch.exp(-entropy)) ** 2 * entropy).mean()


def with_perplexity(output):
    entropy = functional.cross_entropy(output, CLASSES)
    return entropy + 0.01 * entropy.exp()


def with_uncertainty(output):
    entropy = functional.cross_entropy(output, CLASSES)
    doubt = output.mean()
    return torch.exp(-doubt) * entropy + doubt.abs()


def likelihood_beside(output):
    entropy = functional.cross_entropy(output, CLASSES)
    return entropy + (1 - torch.exp(-entropy)) ** 2


FINE = [of_examples, with_perplexity, with_uncertainty, likelihood_beside]


@pytest.mark.parametrize("loss", some_on_push(FINE, 2))
def test_other_exponentials_are_fine(loss):
    assert not told(loss)


def test_one_example_is_fine():
    def single(output):
        entropy = functional.cross_entropy(output, CLASSES[:1])
        return (1 - torch.exp(-entropy)) ** 2 * entropy

    assert not told(single, FEATURES[:1])


def test_a_factor_without_gradient_is_not_judged():
    def weighed(output):
        entropy = functional.cross_entropy(output, CLASSES)
        return (1 - torch.exp(-entropy.detach())) ** 2 * entropy

    assert not told(weighed)
