"""GS216: encoders of a vector quantisation without a straight-through estimator."""

import pytest
import torch
from torch import nn
from torch.nn import functional

from tests.nightly import some_on_push

X = torch.randn(48, 10, generator=torch.Generator().manual_seed(1))


class Quantised(nn.Module):
    """An encoder, a codebook and a decoder.

    Args:
        passed: What the decoder gets of the encoder's output and the codes.
        code: Returns the codes of a codebook, by their numbers.
        learns: Whether the codebook is a parameter, and not a running mean.
    """

    def __init__(self, passed, code, *, learns=True):
        super().__init__()
        torch.manual_seed(0)
        self.encoder = nn.Sequential(nn.Linear(10, 24), nn.GELU(), nn.Linear(24, 4))
        codes = torch.randn(8, 4)
        self.codebook = nn.Parameter(codes) if learns else nn.Buffer(codes)
        self.decoder = nn.Linear(4, 10)
        self.passed, self.code = passed, code

    def forward(self, x):
        z = self.encoder(x)
        codes = self.code(self.codebook, torch.cdist(z, self.codebook).argmin(1))
        return self.decoder(self.passed(z, codes)), z, codes


CODES = {
    "embedding": lambda book, index: functional.embedding(index, book),
    "index": lambda book, index: book[index],
    "one-hot": lambda book, index: functional.one_hot(index, 8).float() @ book,
}


def by_function(z, codes):
    return functional.mse_loss(z, codes.detach()) + functional.mse_loss(codes, z.detach())


def by_hand(z, codes):
    return (z - codes.detach()).square().mean() + (codes - z.detach()).square().mean()


def told(findings_of, model, commitment=by_function):
    def loss(model, batch):
        output, z, codes = model(batch)
        return functional.mse_loss(output, batch) + 0.25 * commitment(z, codes)

    found = findings_of(model, X, loss)
    return [one for one in found if one.rule == "GS216" and one.severity != "note"]


@pytest.mark.parametrize("code", some_on_push(CODES, 2))
@pytest.mark.parametrize("commitment", [by_function, by_hand])
def test_codes_without_a_straight_through_estimator_are_a_warning(findings_of, code, commitment):
    model = Quantised(lambda z, codes: codes, CODES[code])
    (found,) = told(findings_of, model, commitment)
    assert found.severity == "warning"
    assert set(found.parameters) == {
        f"encoder.{name}" for name, _ in model.encoder.named_parameters()
    }
    assert "codes = self.code" in found.location.source or "lambda book" in found.location.source


def test_a_codebook_of_running_means_is_judged_too(findings_of):
    model = Quantised(lambda z, codes: codes, CODES["index"], learns=False)
    (found,) = told(findings_of, model, lambda z, codes: functional.mse_loss(z, codes))
    assert found.severity == "warning"


PASSED = {
    "straight-through": lambda z, codes: z + (codes - z).detach(),
    "scaled": lambda z, codes: codes.detach() + 0.5 * (z - z.detach()),
    "the output itself": lambda z, codes: z,
    "both": lambda z, codes: codes + z,
}


@pytest.mark.parametrize("learns", [True, False])
@pytest.mark.parametrize("passed", some_on_push(PASSED, 3))
def test_an_encoder_that_the_decoder_trains_is_fine(findings_of, passed, learns):
    model = Quantised(PASSED[passed], CODES["index"], learns=learns)
    assert not told(findings_of, model)


def test_an_encoder_with_a_loss_of_its_own_is_fine(findings_of):
    model = Quantised(lambda z, codes: codes, CODES["index"])
    contrast = lambda z, codes: by_function(z, codes) - torch.pdist(z).clamp(max=2).mean()  # noqa: E731
    assert not told(findings_of, model, contrast)


class Chooser(nn.Module):
    """Scores that choose an embedding, and a decoder.

    Args:
        taken: What the decoder gets of the scores and the embeddings.
    """

    def __init__(self, taken):
        super().__init__()
        torch.manual_seed(0)
        self.scores, self.embedding = nn.Linear(10, 8), nn.Embedding(8, 4)
        self.decoder, self.taken = nn.Linear(4, 10), taken

    def forward(self, x):
        scores = self.scores(x)
        return self.decoder(self.taken(scores, self.embedding)), scores


def to_prior(scores, _):
    probabilities = scores.softmax(1)
    return (probabilities * (8 * probabilities + 1e-10).log()).sum(1).mean()


def entropy(scores, _):
    return -(scores.softmax(1) * scores.log_softmax(1)).sum(1).mean()


def by_label(scores, _):
    return functional.cross_entropy(scores, torch.arange(48) % 8)


def as_an_action(scores, error):
    chosen = scores.log_softmax(1).gather(1, scores.argmax(1, keepdim=True)).squeeze(1)
    return (chosen * error.detach()).mean() + to_prior(scores, error)


CHOSEN = {
    "embedding": lambda scores, table: table(scores.argmax(1)),
    "one-hot": lambda scores, table: functional.one_hot(scores.argmax(1), 8).float() @ table.weight,
}
SOFT = {
    "soft": lambda scores, table: scores.softmax(1) @ table.weight,
    "gumbel": lambda scores, table: functional.gumbel_softmax(scores, hard=True) @ table.weight,
    "gate": lambda scores, table: table(scores.argmax(1)) * scores.softmax(1).amax(1, keepdim=True),
}


def chosen(findings_of, taken, term):
    def loss(model, batch):
        output, scores = model(batch)
        error = (output - batch).square().mean(1)
        return error.mean() + 0.1 * term(scores, error)

    found = findings_of(Chooser(taken), X, loss)
    return [one for one in found if one.rule == "GS216" and one.severity != "note"]


@pytest.mark.parametrize("taken", CHOSEN)
@pytest.mark.parametrize("term", some_on_push([to_prior, entropy], 1))
def test_scores_that_choose_and_only_meet_a_prior_are_a_warning(findings_of, taken, term):
    (found,) = chosen(findings_of, CHOSEN[taken], term)
    assert found.severity == "warning"
    assert set(found.parameters) == {"scores.weight", "scores.bias"}


@pytest.mark.parametrize("term", some_on_push([by_label, as_an_action], 1))
def test_scores_that_learn_from_labels_or_as_a_policy_are_fine(findings_of, term):
    assert not chosen(findings_of, CHOSEN["embedding"], term)


@pytest.mark.parametrize("taken", some_on_push(SOFT, 2))
def test_scores_that_the_decoder_trains_are_fine(findings_of, taken):
    assert not chosen(findings_of, SOFT[taken], to_prior)
