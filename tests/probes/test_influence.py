"""The influence probe finds hidden dependencies, and restores the model."""

import pytest
import torch
from torch import nn

from gradscope.recording.evidence.batches import ProbeRecord
from gradscope.recording.evidence.parameters import InfluenceRecord
from gradscope.session.inspection import record
from gradscope.target.loading import target_from_objects
from gradscope.target.options import Trial

X = torch.randn(8, 4, generator=torch.Generator().manual_seed(1))


class Reading(nn.Module):
    """Takes a number out of one part, and uses it or not."""

    def __init__(self, *, uses: bool, random: bool = False):
        super().__init__()
        self.live, self.read = nn.Linear(4, 4), nn.Linear(4, 1)
        self.uses, self.random = uses, random

    def forward(self, x):
        number = self.read(x).mean().item()
        output = self.live(x)
        if self.random:
            output = output + torch.randn_like(output, generator=_GENERATOR)
        return (output * number if self.uses else output).square().mean()


_GENERATOR = torch.Generator().manual_seed(0)


def seen(model, probe_steps=1):
    target = target_from_objects(model, X, None, optimizer=None, grad_output=None)
    recording = record(target, trial=Trial(probe_steps=probe_steps), eager=False, command="inspect")
    (reason,) = [
        one.skip_reason for one in recording.evidence_of(ProbeRecord) if one.name == "influence"
    ]
    return recording.evidence_of(InfluenceRecord), reason


@pytest.mark.parametrize("uses", [True, False])
def test_the_loss_tells_whether_a_number_was_used(uses):
    model = Reading(uses=uses)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    records, reason = seen(model)
    assert reason is None
    assert [(one.parameters, one.changes_loss) for one in records] == [((2, 3), uses)]
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert all(p.grad is None and p.requires_grad for p in model.parameters())


def test_a_loss_that_differs_each_time_tells_nothing():
    records, reason = seen(Reading(uses=True, random=True))
    assert (records, reason) == ((), "the loss differs from run to run")


def test_without_another_forward_nothing_is_asked():
    assert seen(Reading(uses=True), probe_steps=0) == ((), "the forward is not repeated")


def test_what_can_be_followed_is_not_asked_about():
    class Followed(Reading):
        def forward(self, x):
            return (self.live(x) * self.read(x).detach()).square().mean()

    assert seen(Followed(uses=True)) == ((), None)


def test_an_exception_with_other_values_is_a_reason_to_skip():
    class Fussy(Reading):
        def forward(self, x):
            number = self.read(x).mean().item()
            if self.read.weight.detach().abs().max() > 0.5:
                raise ValueError("out of range")
            return (self.live(x) * number).square().mean()

    model = Fussy(uses=True)
    before = model.read.weight.clone()
    _, reason = seen(model)
    assert "raised an exception" in reason
    assert torch.equal(model.read.weight, before)
