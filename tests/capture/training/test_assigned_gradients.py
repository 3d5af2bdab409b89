"""Gradients that a script makes itself, after steps that repeated others unrecorded."""

import torch

from gradscope.capture.training.gradient_state import EMPTY, SPENT, UNSPENT, Entry, GradientState


def _assigned(state: GradientState, parameter: torch.nn.Parameter) -> Entry:
    """Return the entry of a parameter whose gradient the script has made, and a step has used."""
    entry = state.add(parameter)
    assert entry is not None
    parameter.grad = torch.ones(2)
    state.sync()
    state.spend([entry])
    return entry


def test_gradient_made_again_may_be_new_after_unrecorded_steps() -> None:
    state, parameter = GradientState(), torch.nn.Parameter(torch.ones(2))
    entry = _assigned(state, parameter)
    known = state.states()

    parameter.grad = torch.full((2,), 3.0)
    state.restore(known)

    assert entry.state == UNSPENT
    assert entry.is_touched  # a zero_grad() then erases nothing that is known to be unused


def test_gradient_made_after_a_zero_is_new_too() -> None:
    state, parameter = GradientState(), torch.nn.Parameter(torch.ones(2))
    entry = _assigned(state, parameter)
    parameter.grad = None
    state.zeroed()
    known = state.states()
    assert entry.state == EMPTY

    parameter.grad = torch.full((2,), 3.0)
    state.restore(known)

    assert entry.state == UNSPENT


def test_zeros_stay_empty_and_unchanged_gradients_stay_used() -> None:
    state, parameter = GradientState(), torch.nn.Parameter(torch.ones(2))
    entry = _assigned(state, parameter)
    known = state.states()
    state.restore(known)
    assert entry.state == SPENT

    parameter.grad = torch.zeros(2)
    state.sync()
    known = state.states()
    parameter.grad = torch.zeros(2)
    state.restore(known)
    assert entry.state == EMPTY


def test_used_gradient_of_a_backward_stays_used() -> None:
    state, parameter = GradientState(), torch.nn.Parameter(torch.ones(2))
    entry = state.add(parameter)
    assert entry is not None
    parameter.sum().backward()
    state.arrived()
    state.spend([entry])
    known = state.states()

    parameter.grad = None
    parameter.sum().backward()
    state.restore(known)

    assert entry.state == SPENT
    assert not entry.is_touched
