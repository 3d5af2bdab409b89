"""Memory of recurrent layers, against closed forms and plain autograd."""

import pytest
import torch
import torch.utils.checkpoint
from torch import nn
from torch.nn import functional
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from gradscope.recording.evidence.batches import ProbeRecord
from gradscope.recording.evidence.forward import HorizonRecord
from gradscope.session.inspection import record
from gradscope.target.loading import target_from_objects
from gradscope.target.options import Trial
from tests.nightly import some_on_push

STEPS = 12


class Reader(nn.Module):
    """A recurrent layer and a head; `read` says what of its outputs is used."""

    def __init__(self, layer, read):
        super().__init__()
        self.layer, self.read = layer, read

    def forward(self, x):
        return self.read(*self.layer(x))


def recording_of(model, batch, *, steps=1):
    target = target_from_objects(
        model, batch, functional.mse_loss, optimizer=None, grad_output=None
    )
    return record(target, trial=Trial(probe_steps=steps), eager=False, command="inspect")


def horizons(layer, read, x):
    with torch.no_grad():
        target = torch.zeros_like(Reader(layer, read)(x))
    return recording_of(Reader(layer, read), (x, target)).evidence_of(HorizonRecord)


def last(outputs, _):
    return outputs[-1]


def decaying(gain, *, hidden=5, **kwargs):
    """A plain layer at the origin, where a step back multiplies a gradient by `gain`."""
    layer = nn.RNN(hidden, hidden, **kwargs)
    with torch.no_grad():
        for name, parameter in layer.named_parameters():
            parameter.zero_()
            if name == "weight_ih_l0":
                parameter.copy_(torch.eye(hidden))
            if name == "weight_hh_l0":
                parameter.copy_(gain * torch.eye(hidden))
    return layer


@pytest.mark.parametrize("gain", [0.5, 1.0, 2.0])
def test_norms_of_a_linear_memory_are_powers_of_its_gain(gain):
    (found,) = horizons(decaying(gain), last, torch.zeros(STEPS, 3, 5))
    assert found.steps == STEPS
    ratios = [late / early for early, late in zip(found.norms, found.norms[1:], strict=False)]
    assert ratios == pytest.approx([1 / gain] * (STEPS - 1), rel=1e-5)


def test_batch_first_is_the_same_in_another_order():
    x = torch.randn(STEPS, 3, 5)
    straight, turned = decaying(0.7), decaying(0.7, batch_first=True)
    (one,) = horizons(straight, last, x)
    (other,) = horizons(turned, lambda outputs, _: outputs[:, -1], x.transpose(0, 1))
    assert one.norms == pytest.approx(other.norms, rel=1e-5)
    assert one.read_from == other.read_from == STEPS - 1


@pytest.mark.parametrize(
    "kwargs",
    some_on_push(
        [{}, {"num_layers": 2}, {"bidirectional": True}, {"proj_size": 3}, {"dropout": 0.5}], 2
    ),
    ids=str,
)
@pytest.mark.filterwarnings("ignore:dropout option", "ignore:LSTM with projections")
def test_every_kind_of_lstm_fades(kwargs):
    torch.manual_seed(0)
    (found,) = horizons(nn.LSTM(4, 8, **kwargs), last, torch.randn(STEPS, 3, 4))
    assert found.steps == STEPS
    assert 0 < found.norms[0] < found.norms[-1] / 30


def test_norms_of_a_gru_are_those_of_plain_autograd():
    torch.manual_seed(0)
    layer, x = nn.GRU(4, 8), torch.randn(STEPS, 3, 4)
    (found,) = horizons(layer, last, x)
    v = torch.randn(3, 8, generator=torch.Generator().manual_seed(0)).double()
    x = x.double().requires_grad_()
    (gradient,) = torch.autograd.grad((layer.double()(x)[0][-1] * v).sum(), x)
    assert found.norms == pytest.approx([g.norm().item() for g in gradient], rel=1e-4)


def test_what_is_read_at_every_step_needs_no_memory():
    x = torch.randn(STEPS, 3, 5)
    assert horizons(decaying(0.5), lambda out, _: out, x)[0].read_from == 0
    assert horizons(decaying(0.5), lambda out, _: out.mean(0), x)[0].read_from == 0
    assert horizons(decaying(0.5), lambda out, _: out[7:], x)[0].read_from == 7
    assert horizons(decaying(0.5), lambda _, state: state[-1], x)[0].read_from == STEPS - 1


@pytest.mark.nightly
def test_of_packed_sequences_the_longest_count():
    class Packed(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.LSTM(4, 8, batch_first=True)

        def forward(self, x):
            packed = pack_padded_sequence(x, [9, 5, 9], batch_first=True, enforce_sorted=False)
            return pad_packed_sequence(self.layer(packed)[0], batch_first=True)[0][:, -1]

    batch = (torch.randn(3, STEPS, 4), torch.randn(3, 8))
    (found,) = recording_of(Packed(), batch).evidence_of(HorizonRecord)
    assert found.steps == 9


@pytest.mark.nightly
def test_short_sequences_and_layers_called_a_step_at_a_time_are_left_out():
    class Stepwise(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.GRU(4, 8)

        def forward(self, x):
            state = None
            for step in x.split(1):
                _, state = self.layer(step, state)
            return state[0]

    batch = (torch.randn(STEPS, 3, 4), torch.randn(3, 8))
    assert recording_of(Stepwise(), batch).evidence_of(HorizonRecord) == ()
    assert horizons(decaying(0.5), last, torch.randn(3, 2, 5)) == ()


@pytest.mark.filterwarnings("ignore:None of the inputs have requires_grad")
def test_behind_a_reentrant_checkpoint_nothing_is_assumed_of_what_is_read():
    def read(outputs, _):
        head = torch.nn.functional.silu
        return torch.utils.checkpoint.checkpoint(head, outputs[-1], use_reentrant=True)

    (found,) = horizons(decaying(0.5), read, torch.randn(STEPS, 3, 5))
    assert found.read_from == 0


def test_it_is_not_made_where_the_forward_may_not_be_rerun():
    batch = (torch.randn(STEPS, 3, 5), torch.randn(3, 5))
    recording = recording_of(Reader(decaying(0.5), last), batch, steps=0)
    assert recording.evidence_of(HorizonRecord) == ()
    (made,) = [e for e in recording.evidence_of(ProbeRecord) if e.name == "horizons"]
    assert made.skip_reason == "the forward may run only once"


def test_it_works_under_autocast_and_leaves_gradients_and_hooks_alone():
    # Not an LSTM: oneDNN has none in bfloat16 for CPUs without AVX-512.
    model = nn.ModuleDict({"layer": nn.GRU(4, 8), "head": nn.Linear(8, 2)})

    class Mixed(nn.Module):
        def __init__(self):
            super().__init__()
            self.parts = model

        def forward(self, x):
            with torch.autocast("cpu", dtype=torch.bfloat16):
                return self.parts["head"](self.parts["layer"](x)[0][-1]).float()

    mixed = Mixed()
    before = {name: p.detach().clone() for name, p in mixed.named_parameters()}
    batch = (torch.randn(STEPS, 3, 4), torch.randn(3, 2))
    (found,) = recording_of(mixed, batch).evidence_of(HorizonRecord)
    assert found.norms[0] < found.norms[-1]
    for name, parameter in mixed.named_parameters():
        assert torch.equal(parameter, before[name])
        assert parameter.grad is None
    assert not model["layer"]._forward_hooks
