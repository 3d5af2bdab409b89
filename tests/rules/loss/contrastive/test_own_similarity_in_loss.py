"""GS717: similarities of examples to themselves, and losses of other matrices."""

import pytest
import torch
from torch import nn
from torch.nn import functional

import gradscope
from tests.rules import watching

PAIRS = 8
G = torch.Generator().manual_seed(3)
VIEWS = torch.randn(PAIRS, 6, generator=G).repeat(2, 1) + 0.2 * torch.randn(
    2 * PAIRS, 6, generator=G
)
PARTNERS = (torch.arange(2 * PAIRS) + PAIRS) % (2 * PAIRS)


def encoder():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.Linear(16, 8))


def told(loss, *, batch=VIEWS):
    model = encoder()
    found = gradscope.inspect(model, batch, loss).findings
    return [one for one in found if one.rule == "GS717"]


def product(z):
    z = functional.normalize(z, dim=1)
    return z @ z.T / 0.5


def cosines(z):
    return functional.cosine_similarity(z[:, None], z[None], dim=-1) / 0.1


def distances(z):
    return -torch.cdist(z, z).square()


@pytest.mark.parametrize("similarities", [product, cosines, distances])
def test_examples_that_compete_with_themselves_are_found(similarities):
    (found,) = told(lambda z: functional.cross_entropy(similarities(z), PARTNERS))
    assert found.severity == "error"
    assert dict(found.evidence)["rows_won_by_itself"] == 2 * PAIRS


def test_it_is_found_in_a_script(tmp_path):
    model = encoder()
    sgd = torch.optim.SGD(model.parameters(), lr=0.1)

    def train():
        for _ in range(4):
            loss = functional.cross_entropy(product(model(VIEWS)), PARTNERS)
            sgd.zero_grad()
            loss.backward()
            sgd.step()

    (found,) = (one for one in watching.findings_of(train, tmp_path) if one.rule == "GS717")
    assert "functional.cross_entropy" in found.location.source


def masked(z):
    return functional.cross_entropy(
        product(z).masked_fill(torch.eye(len(z), dtype=torch.bool), -1e9), PARTNERS
    )


def less_a_large_number(z):
    return functional.cross_entropy(product(z) - 1e9 * torch.eye(len(z)), PARTNERS)


def filled_with_infinity(z):
    similarities = product(z)
    similarities.fill_diagonal_(float("-inf"))
    return functional.cross_entropy(similarities, PARTNERS)


def without_the_diagonal(z):
    others = product(z)[~torch.eye(len(z), dtype=torch.bool)].view(len(z), -1)
    return functional.cross_entropy(others, (torch.arange(len(z)) + PAIRS - 1) % (len(z) - 1))


def between_two_views(z):
    one, other = functional.normalize(z, dim=1).chunk(2)
    return functional.cross_entropy(one @ other.T / 0.5, torch.arange(PAIRS))


def products_of_some_small_vectors(z):
    """Half of the vectors are more similar to the larger ones than to themselves."""
    sizes = torch.where(torch.arange(len(z)) % 2 == 0, 1.0, 0.02)[:, None]
    vectors = functional.normalize(z, dim=1) * sizes
    return functional.cross_entropy(vectors @ vectors.T, PARTNERS)


def to_themselves(z):
    return functional.cross_entropy(product(z), torch.arange(len(z)))


def in_both_directions(z):
    similarities = product(z)
    return (
        functional.cross_entropy(similarities, torch.arange(len(z)))
        + functional.cross_entropy(similarities.T, torch.arange(len(z)))
    ) / 2


def beside_another_term(z):
    """It keeps the outputs apart, and the other term trains them."""
    return 0.1 * to_themselves(z) + functional.mse_loss(z[:, :6], VIEWS)


def classes_as_many_as_examples(z):
    return functional.cross_entropy(z[:8], torch.arange(8).roll(1))


@pytest.mark.parametrize(
    "loss",
    [
        masked,
        less_a_large_number,
        filled_with_infinity,
        without_the_diagonal,
        between_two_views,
        products_of_some_small_vectors,
        beside_another_term,
        classes_as_many_as_examples,
    ],
)
def test_masked_similarities_and_other_losses_are_fine(loss):
    assert not told(loss)


@pytest.mark.parametrize("loss", [to_themselves, in_both_directions])
def test_equal_views_are_a_warning(loss):
    found = told(loss)
    assert {one.severity for one in found} == {"warning"}
    assert all("equal" in one.message for one in found)


def test_views_that_dropout_makes_are_fine_in_train_mode_alone():
    model = nn.Sequential(encoder(), nn.Dropout(0.1))

    def loss(model, batch):
        one, other = (functional.normalize(model(batch), dim=1) for _ in range(2))
        return functional.cross_entropy(one @ other.T / 0.1, torch.arange(len(batch)))

    def codes():
        report = gradscope.inspect(model, VIEWS[:PAIRS], loss)
        return [one.severity for one in report.findings if one.rule == "GS717"]

    assert codes() == []
    model.eval()
    assert codes() == ["warning"]
