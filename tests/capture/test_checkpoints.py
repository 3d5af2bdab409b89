"""Checkpoints that are recomputed with other random numbers, and the gradients that they give."""

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from gradscope.capture.source.lines import Caller
from gradscope.capture.step.forward_calls import CheckpointObserver

LAYER, DROPOUT = nn.Linear(6, 6), nn.Dropout(0.5)


def noisy(x):
    return DROPOUT(LAYER(x)).square()


def plain(x):
    return LAYER(x).square()


def observed(region, *, preserve, x=None):
    """Return what was observed of two checkpoints in a row."""
    observer = CheckpointObserver(Caller())
    x = torch.randn(4, 6, requires_grad=True) if x is None else x
    with observer.watch():
        for _ in range(2):
            x = checkpoint(region, x, use_reentrant=False, preserve_rng_state=preserve)
    x.sum().backward()
    return observer.found


def test_region_that_draws_without_keeping_the_state_is_found_with_its_line():
    (found,) = observed(noisy, preserve=False)
    assert found.calls == 2
    assert found.line is not None
    assert found.line.code is observed.__code__


@pytest.mark.parametrize(("region", "preserve"), [(noisy, True), (plain, True), (plain, False)])
def test_other_regions_are_right(region, preserve):
    assert not observed(region, preserve=preserve)


def test_watching_changes_neither_the_numbers_nor_torch():
    def gradient(watched):
        torch.manual_seed(0)
        x = torch.randn(4, 6, requires_grad=True)
        if watched:
            observed(noisy, preserve=False, x=x)
        else:
            y = x
            for _ in range(2):
                y = checkpoint(noisy, y, use_reentrant=False, preserve_rng_state=False)
            y.sum().backward()
        return x.grad

    before = torch.utils.checkpoint._checkpoint_without_reentrant_generator
    assert torch.equal(gradient(watched=True), gradient(watched=False))
    assert torch.utils.checkpoint._checkpoint_without_reentrant_generator is before


def test_exception_of_the_region_reaches_the_caller():
    def fails(x):
        raise KeyError("region")

    observer = CheckpointObserver(Caller())
    with observer.watch(), pytest.raises(KeyError, match="region"):
        checkpoint(fails, torch.ones(2), use_reentrant=False, preserve_rng_state=False)
    assert not observer.found


@pytest.mark.parametrize(("preserve", "is_right"), [(True, True), (False, False)])
def test_gradient_is_that_of_the_output_only_if_the_state_is_kept(preserve, is_right):
    torch.manual_seed(0)
    x = torch.randn(64, 6)
    LAYER.zero_grad()
    torch.manual_seed(1)
    checkpoint(noisy, x, use_reentrant=False, preserve_rng_state=preserve).sum().backward()
    found = LAYER.weight.grad.clone()
    LAYER.zero_grad()
    torch.manual_seed(1)
    noisy(x).sum().backward()
    deviation = (found - LAYER.weight.grad).norm() / LAYER.weight.grad.norm()
    assert (deviation < 1e-6) if is_right else (deviation > 0.2)
