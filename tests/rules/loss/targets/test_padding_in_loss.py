"""GS711: losses of padded sequences, with and without the padding."""

import pytest
import torch
from torch import nn
from torch.nn import functional

PAD, WORDS, TAGS = 0, 30, 5


def padded(lengths, size=20, *, first=False):
    """Tokens that end in padding, or begin with it."""
    generator = torch.Generator().manual_seed(0)
    tokens = torch.randint(1, WORDS, (len(lengths), size), generator=generator)
    for row, length in enumerate(lengths):
        tokens[row, slice(0, size - length) if first else slice(length, None)] = PAD
    return tokens


HALF = (20, 12, 8, 4, 4, 2)
"""36 % of the positions are tokens."""


class Model(nn.Module):
    """Predicts a class at each position, and computes the loss as it is told."""

    def __init__(self, loss, classes=WORDS, padding=PAD):
        super().__init__()
        self.embedding = nn.Embedding(WORDS, 8, padding_idx=padding)
        self.head = nn.Linear(8, classes)
        self.loss = loss

    def forward(self, tokens, attention_mask=None):
        return self.loss(self.head(self.embedding(tokens)), tokens)


def take(output, _):
    return output


def plain(scores, classes, **options):
    return functional.cross_entropy(scores.flatten(0, 1), classes.flatten(), **options)


def following(scores, tokens, **options):
    return plain(scores[:, :-1], tokens[:, 1:], **options)


def shifted(scores, tokens, **options):
    return plain(scores, functional.pad(tokens[:, 1:], (0, 1), value=-100), **options)


def summed(scores, tokens):
    return plain(scores, tokens, reduction="sum")


def tags(scores, tokens):
    return plain(scores, torch.where(tokens == PAD, 0, tokens % TAGS))


def found(findings):
    return [one for one in findings if one.rule == "GS711"]


@pytest.mark.parametrize("loss", [plain, following, shifted, summed])
def test_tokens_that_pad_are_found(findings_of, loss):
    (one,) = found(findings_of(Model(loss), (padded(HALF),), take))
    assert one.severity == "warning"
    assert "class 0 there" in one.message


def test_share_is_that_of_the_targets_at_padding(findings_of):
    (one,) = found(findings_of(Model(plain), (padded(HALF),), take))
    assert dict(one.evidence)["padding_share"] == pytest.approx(1 - sum(HALF) / 120)


def test_tags_at_padding_are_found(findings_of):
    assert found(findings_of(Model(tags, TAGS), (padded(HALF),), take))


def test_sequences_in_the_second_dimension_are_found(findings_of):
    def loss(scores, tokens):
        return plain(scores, tokens)

    assert found(findings_of(Model(loss), (padded(HALF).T.contiguous(),), take))


@pytest.mark.parametrize("first", [False, True])
def test_mask_of_the_model_tells_padding(findings_of, first):
    tokens = padded(HALF, first=first)
    batch = {"tokens": tokens, "attention_mask": (tokens != PAD).long()}
    (one,) = found(findings_of(Model(plain, padding=None), batch, take))
    assert one.severity == "warning"


@pytest.mark.parametrize("loss", [plain, following])
def test_padding_that_begins_the_sequences_is_found(findings_of, loss):
    (one,) = found(findings_of(Model(loss), (padded(HALF, first=True),), take))
    assert "class 0 there" in one.message


def test_ignored_padding_that_begins_the_sequences_is_fine(findings_of):
    assert not found(findings_of(Model(ignored), (padded(HALF, first=True),), take))


def test_decoder_that_begins_with_the_padding_token_is_fine(findings_of):
    """Every first target is the same: the language, say."""
    tokens = padded((20,) * 24)
    tokens[:, 0] = PAD

    def of_language(scores, tokens):
        return plain(scores, torch.cat([tokens[:, 1:], tokens[:, :1] + 3], dim=1).roll(1, 1))

    assert not found(findings_of(Model(of_language), (tokens,), take))


def following_items(scores, tokens):
    """Whether an item is the next: of one item each that is, as recommenders are trained."""
    each = scores[..., 0].flatten()
    return functional.binary_cross_entropy_with_logits(each, torch.ones_like(each))


def following_items_masked(scores, tokens):
    each = scores[..., 0][tokens != PAD]
    return functional.binary_cross_entropy_with_logits(each, torch.ones_like(each))


def many_labels(scores, tokens):
    """As many labels as positions, most of which are 0."""
    each = scores[..., 0]
    return functional.binary_cross_entropy_with_logits(each, torch.zeros_like(each))


@pytest.mark.parametrize(
    ("loss", "count"), [(following_items, 1), (following_items_masked, 0), (many_labels, 0)]
)
@pytest.mark.parametrize("first", [False, True])
def test_scores_of_two_classes_at_padding_are_found(findings_of, loss, count, first):
    told = found(findings_of(Model(loss), (padded(HALF, first=first),), take))
    assert [one.severity for one in told] == ["warning"] * count


def weightless(scores, tokens):
    return plain(scores, tokens, weight=torch.cat([torch.zeros(1), torch.ones(WORDS - 1)]))


def masked(scores, tokens):
    each = plain(scores, tokens, reduction="none")
    return (each * (tokens != PAD).flatten()).sum() / (tokens != PAD).sum()


def ignored(scores, tokens):
    return plain(scores, tokens, ignore_index=PAD)


def set_apart(scores, tokens):
    return plain(scores, tokens.masked_fill(tokens == PAD, -100))


def selected(scores, tokens):
    return functional.cross_entropy(scores[tokens != PAD], tokens[tokens != PAD])


def pooled(scores, tokens):
    return functional.cross_entropy(scores.mean(1), tokens[:, 0])


def different(scores, tokens):
    return plain(scores, torch.arange(tokens.numel()) % WORDS)


@pytest.mark.parametrize(
    "loss", [weightless, masked, ignored, set_apart, selected, pooled, different]
)
def test_losses_without_padding_are_fine(findings_of, loss):
    assert not found(findings_of(Model(loss), (padded(HALF),), take))


def test_tokens_without_padding_are_fine(findings_of):
    assert not found(findings_of(Model(plain), (padded((20,) * 6),), take))


def test_frequent_token_within_the_sequences_is_fine(findings_of):
    tokens = padded((20,) * 6)
    tokens[:, ::2] = PAD
    assert not found(findings_of(Model(plain), (tokens,), take))


def test_embedding_that_learns_all_tokens_tells_nothing(findings_of):
    assert not found(findings_of(Model(plain, padding=None), (padded(HALF),), take))


@pytest.mark.parametrize(("length", "count"), [(18, 1), (19, 0)])
def test_one_end_mark_per_sequence_is_fine(findings_of, length, count):
    # 20 sequences: at 18 tokens, 2 of 20 targets are padding, at 19 one.
    tokens = padded((length,) * 20)
    assert len(found(findings_of(Model(plain), (tokens,), take))) == count


@pytest.mark.parametrize(("lengths", "count"), [((4,), 1), ((5,), 0)])
def test_sixteen_targets_are_needed(findings_of, lengths, count):
    assert len(found(findings_of(Model(plain), (padded((*lengths, 20)),), take))) == count
