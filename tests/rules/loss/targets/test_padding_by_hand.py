"""GS711: sums and means by hand over the positions of padded sequences."""

import pytest
import torch
from torch import nn
from torch.nn import functional

import gradscope
from tests.nightly import some_on_push

CLASSES, LENGTH, ROWS = 30, 12, 8
G = torch.Generator().manual_seed(0)
LENGTHS = torch.tensor([4, 12, 6, 8, 5, 9, 7, 10])
REAL = torch.arange(LENGTH)[None] < LENGTHS[:, None]
TOKENS = torch.randint(1, CLASSES, (ROWS, LENGTH), generator=G) * REAL
TAGS = torch.randint(1, CLASSES, (ROWS, LENGTH), generator=G)


class Tagger(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(CLASSES, 16, padding_idx=0)
        self.memory = nn.GRU(16, 16, batch_first=True)
        self.out = nn.Linear(16, CLASSES)

    def forward(self, tokens):
        return self.out(self.memory(self.embedding(tokens))[0])


def told(loss, *, tokens=TOKENS):
    torch.manual_seed(0)
    found = gradscope.inspect(Tagger(), tokens, loss).findings
    return [one for one in found if one.rule == "GS711"]


def picked(out, tags):
    return -out.log_softmax(-1).gather(-1, tags[..., None]).squeeze(-1)


def unreduced(out, tags):
    return functional.cross_entropy(out.flatten(0, 1), tags.flatten(), reduction="none")


def smoothed(out, tags):
    logs = out.log_softmax(-1)
    return 0.9 * picked(out, tags) - 0.1 * logs.mean(-1)


def of_rows(out, tags):
    rows = functional.one_hot(tags, CLASSES).float() * 0.9 + 0.1 / CLASSES
    return -(out.log_softmax(-1) * rows).sum(-1)


TAGS_WITH_PADDING = TAGS * REAL


def of_next(out, tags):
    return unreduced(out[:, :-1], tags[:, 1:])


WAYS = [picked, unreduced, smoothed, of_rows, of_next]


@pytest.mark.parametrize("terms", some_on_push(WAYS, {0, 3}))
def test_a_mean_over_all_positions_is_a_warning(terms):
    (found,) = told(lambda out: terms(out, TAGS_WITH_PADDING).mean())
    assert found.severity == "warning"
    assert found.message.startswith("this mean takes in all")


def test_a_sum_of_all_positions_is_a_warning():
    (found,) = told(lambda out: picked(out, TAGS_WITH_PADDING).sum(1).mean())
    assert found.severity == "warning"
    assert dict(found.evidence)["targets"] == ROWS * LENGTH


def test_a_mean_that_divides_by_the_padding_is_a_note():
    (found,) = told(lambda out: (picked(out, TAGS_WITH_PADDING) * REAL).mean())
    assert found.severity == "note"


HEALTHY = {
    "masked": lambda out: (picked(out, TAGS_WITH_PADDING) * REAL).sum() / REAL.sum(),
    "chosen": lambda out: picked(out, TAGS_WITH_PADDING)[REAL].mean(),
    "filled": lambda out: picked(out, TAGS_WITH_PADDING).masked_fill(~REAL, 0).sum() / REAL.sum(),
    "by sequence": lambda out: (
        (picked(out, TAGS_WITH_PADDING) * REAL).sum(1) / REAL.sum(1)
    ).mean(),
    "tags of all classes": lambda out: picked(out, TAGS).mean(),
    "ignored": lambda out: unreduced(out, TAGS.masked_fill(~REAL, -100)).sum() / REAL.sum(),
}


@pytest.mark.parametrize("way", some_on_push(HEALTHY, {"masked", "tags of all classes"}))
def test_losses_without_the_padding_are_fine(way):
    assert not told(HEALTHY[way])


def test_sequences_without_padding_are_fine():
    full = torch.randint(1, CLASSES, (ROWS, LENGTH), generator=G)
    assert not told(lambda out: picked(out, full).mean(), tokens=full)


def test_little_padding_is_fine():
    tokens = TOKENS.clone()
    tokens[:, :-1] = tokens[:, :-1].clamp_min(1)
    assert not told(lambda out: picked(out, tokens).mean(), tokens=tokens)
