"""Random numbers of a batch are reused for its parts."""

from functools import partial

import pytest
import torch
from torch import nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

from gradscope.probes.micro_batches.equal_draws import EqualDraws, Part

X = torch.randn(6, 4, 3)


def halves(function, x=X, dimension=0):
    """Return what the function gives for the whole, and of its halves put together."""
    draws = EqualDraws()
    torch.manual_seed(1)
    with draws.kept():
        whole = function(x)
    parts = []
    for position, part in enumerate(x.chunk(2, dimension)):
        torch.manual_seed(2 + position)
        with draws.given(Part(3 * position, 3, 6)):
            parts.append(function(part))
    return draws, whole, torch.cat(parts, dimension)


SHARED = {
    "dropout": functional.dropout,
    "dropout of channels": functional.dropout1d,
    "alpha dropout": partial(functional.alpha_dropout, training=True),
    "gumbel": partial(functional.gumbel_softmax, hard=True),
    "noise like": torch.randn_like,
    "one for each example": lambda x: x + torch.rand(len(x), 1, 1),
    "integers": lambda x: torch.randint(0, 100, (len(x),)),
    "normal": lambda x: torch.normal(0.0, 1.0, x.shape),
    "samples": lambda x: torch.multinomial(x.flatten(1).abs(), 2),
    "coins": lambda x: torch.bernoulli(x.sigmoid()),
    "flattened": lambda x: functional.dropout(x.flatten(0, 1)).view_as(x),
    "without examples": lambda x: x * torch.rand(3),
    "in place": lambda x: torch.empty_like(x).uniform_(-1, 1),
    "fused dropout": lambda x: torch.native_dropout(x, 0.3, True)[0],
}


@pytest.mark.parametrize("function", SHARED.values(), ids=SHARED)
def test_parts_draw_what_is_theirs(function):
    draws, whole, parts = halves(function)
    assert draws.count == 1
    assert draws.unmatched == 0
    assert torch.equal(whole, parts)


@pytest.mark.parametrize(
    "make",
    [
        partial(nn.TransformerEncoderLayer, 3, 1, 8, dropout=0.4, batch_first=True),
        partial(nn.LSTM, 3, 5, 2, dropout=0.5, batch_first=True),
    ],
    ids=["transformer", "LSTM"],
)
def test_dropout_inside_of_torchs_own_layers(make):
    module = make()
    draws, whole, parts = halves(lambda x: first(module(x)))
    assert draws.count
    assert draws.unmatched == 0
    torch.testing.assert_close(whole, parts)


def first(output):
    return output[0] if isinstance(output, tuple) else output


def test_examples_along_the_second_dimension():
    _, whole, parts = halves(functional.dropout, torch.randn(4, 6, 3), dimension=1)
    assert torch.equal(whole, parts)


@pytest.mark.parametrize("use_reentrant", [False, True])
def test_checkpoint_draws_the_same_again_in_backward(use_reentrant):
    def gradient(x):
        x = x.detach().requires_grad_()

        def twice(x):
            return functional.dropout(functional.dropout(x * x, 0.3), 0.6)

        checkpoint(twice, x, use_reentrant=use_reentrant).sum().backward()
        return x.grad

    draws, whole, parts = halves(gradient)
    assert (draws.count, draws.unmatched) == (2, 0)
    assert torch.equal(whole, parts)
    assert whole.count_nonzero() < whole.numel()


UNSHARED = {
    "permutation": lambda x: x[torch.randperm(len(x))],
    "places": lambda x: torch.randint(0, len(x), (len(x),)),
    "slopes": lambda x: functional.rrelu(x, training=True),
    "pairs": lambda x: torch.rand(len(x), len(x))[:, :1],
    "other probability": lambda x: functional.dropout(x, 0.5 if len(x) == 6 else 0.4),
    "other operation": lambda x: torch.rand(len(x)) if len(x) == 6 else torch.randn(len(x)),
}


@pytest.mark.parametrize("function", UNSHARED.values(), ids=UNSHARED)
def test_what_cannot_be_shared_is_counted(function):
    draws, _, _ = halves(function)
    assert draws.unmatched


def test_generator_of_the_users_own():
    generator = torch.Generator()
    draws, whole, parts = halves(lambda x: torch.rand(len(x), generator=generator))
    assert (draws.count, draws.unmatched) == (1, 0)
    assert torch.equal(whole, parts)


def test_whole_batch_draws_as_it_would_without():
    torch.manual_seed(1)
    plain, state = functional.dropout(X), torch.get_rng_state()
    _, whole, _ = halves(functional.dropout)
    torch.manual_seed(1)
    with EqualDraws().kept():
        functional.dropout(X)
    assert torch.equal(torch.get_rng_state(), state)
    assert torch.equal(whole, plain)
