"""GS715: examples that lose what makes them different, and outputs that may be equal."""

import pytest
import torch
from torch import nn
from torch.nn import functional
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

import gradscope
from tests.nightly import some_on_push

G = torch.Generator().manual_seed(1)
LENGTHS = torch.tensor([3, 5, 2, 7, 4, 3, 6, 2])
WORDS = torch.randn(8, 7, 6, generator=G)
CLASSES = torch.arange(8) % 3


def told(findings):
    return [finding for finding in findings if finding.rule == "GS715"]


class Reader(nn.Module):
    """Reads sequences `[batch, time, 6]` of known lengths; how is up to `read`."""

    def __init__(self, read):
        super().__init__()
        torch.manual_seed(0)
        self.rnn = nn.GRU(6, 6, batch_first=True)
        self.head = nn.Linear(6, 3)
        self.read = read

    def states(self, x, lengths):
        packed = pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False)
        return pad_packed_sequence(self.rnn(packed)[0], batch_first=True)[0]

    def forward(self, x, lengths):
        return self.head(self.read(self, x, lengths))


def last_step(model, x, lengths):
    return model.states(x, lengths)[:, -1]


def masked_away(model, x, lengths):
    kept = (lengths > 6).float()
    return (model.states(x, lengths) * kept[:, None, None]).sum(1)


def same_row_for_all(model, x, lengths):
    best = model.states(x, lengths).mean(1).sum(1).argmax()
    return model.states(x, lengths)[:, 0][best.expand(len(x))]


def step_at_length(model, x, lengths):
    return model.states(x, lengths)[torch.arange(len(x)), lengths - 1]


def averaged(model, x, lengths):
    return model.states(x, lengths).sum(1) / lengths[:, None]


def inspected(findings_of, model, x=WORDS, lengths=LENGTHS):
    batch = ((x, lengths), CLASSES[: len(x)])
    return findings_of(
        model, batch, lambda output, batch: functional.cross_entropy(output, batch[1])
    )


@pytest.mark.parametrize(
    ("read", "line"),
    some_on_push(
        [
            (last_step, "return model.states(x, lengths)[:, -1]"),
            (masked_away, "return (model.states(x, lengths) * kept[:, None, None]).sum(1)"),
            (same_row_for_all, "return model.states(x, lengths)[:, 0][best.expand(len(x))]"),
        ],
        {0, 1},
    ),
)
def test_examples_that_become_equal_are_found_at_the_line(findings_of, read, line):
    (found,) = told(inspected(findings_of, Reader(read)))
    assert found.severity == "warning"
    assert found.location.source == line


@pytest.mark.parametrize("read", [step_at_length, averaged])
def test_examples_that_differ_are_fine(findings_of, read):
    assert not told(inspected(findings_of, Reader(read)))


@pytest.mark.parametrize(("longest", "count"), some_on_push([(4, 0), (3, 1)], 2))
def test_more_than_half_must_be_equal(findings_of, longest, count):
    lengths = torch.tensor([7] * longest + [3] * (8 - longest))
    assert len(told(inspected(findings_of, Reader(last_step), lengths=lengths))) == count


@pytest.mark.nightly
def test_examples_with_equal_inputs_count_once(findings_of):
    words = torch.cat([WORDS[:2], WORDS[2:3].expand(6, -1, -1)])
    lengths = torch.tensor([7, 7, 3, 3, 3, 3, 3, 3])
    assert not told(inspected(findings_of, Reader(last_step), words, lengths))


def test_a_head_that_starts_at_zero_is_passed_over(findings_of):
    model = Reader(averaged)
    nn.init.zeros_(model.head.weight)
    assert not told(inspected(findings_of, model))


def test_an_output_that_is_no_number_for_each_example_cannot_be_judged(findings_of):
    class Total(Reader):
        def forward(self, x, lengths):
            return super().forward(x, lengths).mean().expand(3, 1)

    batch = ((WORDS, LENGTHS), torch.zeros(3, 1))
    found = findings_of(Total(last_step), batch, lambda y, _: functional.mse_loss(y, batch[1]))
    assert not told(found)


@pytest.mark.nightly
def test_the_model_and_random_numbers_are_left_as_they_were():

    model = Reader(last_step)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    state = torch.get_rng_state()
    batch = ((WORDS, LENGTHS), CLASSES)
    gradscope.inspect(model, batch, lambda y, _: functional.cross_entropy(y, CLASSES))
    assert all(torch.equal(before[name], value) for name, value in model.state_dict().items())
    assert torch.equal(state, torch.get_rng_state())


class Quantised(nn.Module):
    """Rounds two numbers per example, and passes their gradient through."""

    def __init__(self, levels):
        super().__init__()
        torch.manual_seed(0)
        self.encoder, self.decoder = nn.Linear(6, 2), nn.Linear(2, 6)
        self.levels = levels

    def forward(self, x):
        code = torch.tanh(self.encoder(x))
        rounded = torch.round(code * self.levels) / self.levels
        return self.decoder(code + (rounded - code).detach())


@pytest.mark.parametrize("levels", [0.3, 1, 2])
def test_a_quantiser_may_give_examples_one_code(findings_of, levels):
    x = WORDS[:, 0] / 2
    assert not told(findings_of(Quantised(levels), (x, x), functional.mse_loss))


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("rows", "count"), [([0, 0, 0, 0, 0, 1, 2, 3], 1), ([0, 0, 0, 0, 0, 1, 1, 3], 0)]
)
def test_examples_that_share_outputs_in_several_groups_are_fine(findings_of, rows, count):
    def read(model, x, lengths):
        return model.states(x, lengths)[:, 0][torch.tensor(rows)]

    assert len(told(inspected(findings_of, Reader(read)))) == count


@pytest.mark.parametrize("scale", [0.0, 1.0])
def test_a_layer_that_is_dead_is_not_told_as_equal_outputs(findings_of, scale):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 3))
    model[0].bias.data -= 100 * (1 - scale)
    assert not told(findings_of(model, (WORDS[:, 0], CLASSES), functional.cross_entropy))
