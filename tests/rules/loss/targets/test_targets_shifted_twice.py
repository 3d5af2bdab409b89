"""GS709: the targets of language models against the tokens that they look up."""

import pytest
import torch
from torch import nn
from torch.nn import functional

from tests.nightly import some_on_push

TOKENS = torch.randint(0, 30, (4, 20), generator=torch.Generator().manual_seed(0))


class Model(nn.Module):
    """Predicts classes at each position, and computes the loss as it is told."""

    def __init__(self, loss):
        super().__init__()
        self.embedding = nn.Embedding(30, 8)
        self.head = nn.Linear(8, 30)
        self.loss = loss

    def forward(self, tokens):
        return self.loss(self.head(self.embedding(tokens)), tokens)


def shifted(classes, by):
    """Shift as libraries do: the last positions do not count."""
    return functional.pad(classes[:, by:], (0, by), value=-100) if by else classes


def take(output, _):
    return output


def entropy(scores, classes):
    return functional.cross_entropy(scores.flatten(0, 1), classes.flatten())


def right(scores, tokens):
    return entropy(scores, shifted(tokens, 1))


def twice(scores, tokens):
    return entropy(scores, shifted(shifted(tokens, 1), 1))


def twice_with_weights(scores, tokens):
    logs = scores.log_softmax(-1).flatten(0, 1)
    return functional.nll_loss(logs, shifted(shifted(tokens, 1), 1).flatten())


def twice_with_a_prompt(scores, tokens):
    labels = tokens.clone()
    labels[:, :6] = -100
    return entropy(scores, shifted(shifted(labels, 1), 1))


def both(scores, tokens):
    return right(scores, tokens) + twice(scores, tokens)


def same(scores, tokens):
    return entropy(scores, tokens)


def three(scores, tokens):
    return entropy(scores, shifted(tokens, 3))


def cut(scores, tokens):
    return entropy(scores[:, :-2], tokens[:, 2:])


def rolled(scores, tokens):
    return entropy(scores, tokens.roll(-2, 1))


def nearly(scores, tokens):
    other = shifted(tokens, 2).clone()
    other[0, 3] = (other[0, 3] + 1) % 30
    return entropy(scores, other)


def found(findings):
    return [one for one in findings if one.rule == "GS709"]


@pytest.mark.parametrize("loss", [twice, twice_with_weights, twice_with_a_prompt])
def test_the_token_after_the_next_is_found(findings_of, loss):
    (one,) = found(findings_of(Model(loss), (TOKENS,), take))
    assert one.severity == "warning"
    assert "(scores.flatten(0, 1), " in one.location.source or "nll_loss(" in one.location.source


@pytest.mark.parametrize(
    "loss", some_on_push([right, both, same, three, cut, rolled, nearly], {0, 3})
)
def test_other_targets_are_fine(findings_of, loss):
    assert not found(findings_of(Model(loss), (TOKENS,), take))


@pytest.mark.parametrize("period", [1, 2, 3])
def test_repeating_tokens_tell_nothing(findings_of, period):
    tokens = (torch.arange(20) % period).expand(4, 20).contiguous()
    assert len(found(findings_of(Model(twice), (tokens,), take))) == (period == 3)


def test_frozen_embeddings_are_seen(findings_of):
    model = Model(twice)
    model.embedding.requires_grad_(False)
    assert found(findings_of(model, (TOKENS,), take))
