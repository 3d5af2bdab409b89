"""A network in half precision whose loss may be too small, and what its rules find."""

import dataclasses

import torch
from torch import nn

import gradscope
from gradscope.recording.evidence.failures import FlushedGradient, FlushRecord
from gradscope.rules.engine import judge

X = torch.randn(64, 8, generator=torch.Generator().manual_seed(1))


class Pressure(nn.Module):
    """A network in half precision, with a small loss times a factor."""

    def __init__(self, *, factor=1.0, size=1e-4, dtype=torch.float16):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 1))
        self.factor, self.size, self.dtype = factor, size, dtype

    def forward(self, x):
        with torch.autocast("cpu", dtype=self.dtype):
            predicted = self.layers(x) * self.size
        target = self.size * x.sum(1, keepdim=True)
        return (predicted.float() - target).square().mean() * self.factor


def recording_of(**chosen):
    return gradscope.inspect(Pressure(**chosen), X, probe_steps=1).recording


def found(recording):
    """Return code and level of what is found of half precision."""
    codes = ("GS601", "GS604")
    return [(one.rule, one.severity) for one in judge(recording).findings if one.rule in codes]


def with_share(recording, *, flushed, elements, **changes):
    """Return the recording with other counts of flushed elements."""
    gradients = (FlushedGradient(parameter=0, elements=elements, flushed=flushed),)
    evidence = tuple(
        dataclasses.replace(one, gradients=gradients, **changes)
        if isinstance(one, FlushRecord)
        else one
        for one in recording.evidence
    )
    return dataclasses.replace(recording, evidence=evidence)


LEVELS = [
    (0, None),
    (49, None),
    (50, "note"),
    (249, "note"),
    (250, "warning"),
    (749, "warning"),
    (750, "error"),
    (1000, "error"),
]
"""Flushed elements of a thousand, and the level."""
