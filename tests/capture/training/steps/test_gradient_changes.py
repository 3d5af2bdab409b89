"""Tests which events trigger captures of the next steps."""

import math

import torch

from gradscope.capture.training.gradient_state import GradientState
from gradscope.capture.training.steps.measurements import Measured
from gradscope.capture.training.steps.repetitions import GradientChanges

STATE = GradientState()
TENSORS = [torch.ones(2, requires_grad=True) for _ in range(3)]


def measured(*gradients):
    """Return parameters with these norms of gradients, None for none."""
    pairs = zip(TENSORS, gradients, strict=False)
    return [Measured(STATE.add(tensor), 1.0, norm, 2, True) for tensor, norm in pairs]


def troubles_at(*steps):
    """Return in which of some steps of one optimizer there is something new."""
    troubles = GradientChanges()
    found = []
    for position, gradients in enumerate(steps):
        norm = math.hypot(*(one for one in gradients if one is not None))
        if troubles.has_new(0, {"norm": norm}, measured(*gradients)):
            found.append(position)
    return found


def test_usual_steps_are_none():
    assert troubles_at(*[(1.0, 2.0)] * 20) == []


def test_a_part_that_dies_or_begins_to_learn():
    assert troubles_at(*[(1.0, 2.0)] * 8, *[(1.0, 0.0)] * 8) == [8]
    assert troubles_at(*[(1.0, None)] * 8, *[(1.0, 2.0)] * 8) == [8]


def test_what_comes_and_goes_is_usual():
    assert troubles_at(*[(1.0, 2.0), (1.0, 0.0)] * 10) == []


def test_a_part_that_the_optimizer_gets_later():
    assert troubles_at(*[(1.0,)] * 8, *[(1.0, 2.0)] * 3) == [8]
    assert troubles_at((1.0,), *[(1.0, 2.0)] * 8) == []  # its first steps are looked at anyway


def test_gradients_that_stop_being_finite():
    assert troubles_at((1.0,), (math.nan,), (math.nan,), (1.0,), (math.inf,)) == [1, 4]


def test_steps_in_which_nothing_is_measured_tell_nothing():
    assert not GradientChanges().has_new(0, {}, None)
