"""Small models, and the records of their micro-batches."""

import torch
from torch import nn

from gradscope.recording.evidence.batches import AccumulationRecord
from gradscope.session.inspection import record
from gradscope.target.loading import target_from_objects
from gradscope.target.options import Trial

RANDOM = torch.Generator().manual_seed(3)
X, Y = torch.randn(8, 6, generator=RANDOM), torch.randint(0, 3, (8,), generator=RANDOM)
IGNORING = torch.tensor([0, -100, -100, -100, 2, 1, 1, 0])
MEAN, SUM = nn.CrossEntropyLoss(), nn.CrossEntropyLoss(reduction="sum")


def net(*middle):
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(6, 16), *middle, nn.Tanh(), nn.Linear(16, 3))


def recorded(model, batch, loss, number, **trial):
    target = target_from_objects(model, batch, loss, optimizer=None, grad_output=None)
    trial = Trial(probe_steps=0, micro_batches=number, **trial)
    return record(target, trial=trial, eager=False, command="inspect")


def compared(model, batch, loss, number):
    (found,) = recorded(model, batch, loss, number).evidence_of(AccumulationRecord)
    return found
