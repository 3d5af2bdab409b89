"""Gradients that were kept: how far they agree, as torch says."""

from array import array

import pytest
import torch

from gradscope.comparison.tolerance import Tolerance
from gradscope.recording.stored_gradient import StoredGradient, StoredPart
from tests.comparison.sides import changes, compared, of_run, of_step

SHAPE = (2, 2)


def kept(values, parameter=0, step=0):
    return StoredGradient(
        step=step, parameter=parameter, form="exact", shape=SHAPE, dtype="float32",
        parts=(StoredPart(array("f", values).tobytes()),),
    )  # fmt: skip


def of_gradients(*gradients):
    """A recording of one step, and the gradients of its parameters."""
    norms = {f"{position}.weight": float(torch.tensor(one).norm()) for position, one in
             enumerate(gradients)}  # fmt: skip
    return of_step(
        norms, stored_gradients=tuple(kept(one, position) for position, one in enumerate(gradients))
    )


def test_cosine_and_difference_are_those_of_torch():
    generator = torch.Generator().manual_seed(0)
    ours, theirs = (torch.randn(3, 4, generator=generator) for _ in range(2))
    found = compared(of_gradients(*ours.tolist()), of_gradients(*theirs.tolist()))
    for row, one, other in zip(found.parameters, ours.double(), theirs.double(), strict=True):
        pair = row.pairs[1]
        assert pair.cosine == pytest.approx(torch.cosine_similarity(one, other, dim=0).item())
        larger = max(one.norm(), other.norm())
        assert pair.relative_difference == pytest.approx(((one - other).norm() / larger).item())
    whole = found.directions[1]
    expected = torch.cosine_similarity(ours.flatten(), theirs.flatten(), dim=0).item()
    assert (whole.total.cosine, whole.steps) == (pytest.approx(expected), ())


@pytest.mark.parametrize(("limit", "expected"), [(0.79, "within"), (0.81, "turned")])
def test_a_gradient_that_turned_is_told_from_one_of_another_norm(limit, expected):
    base, other = of_gradients([1.0, 0.0, 0.0, 0.0]), of_gradients([0.8, 0.6, 0.0, 0.0])
    found = compared(base, other, tolerance=Tolerance(cosine=limit))
    assert changes(found) == {"0.weight": expected}
    kinds = [one.kind for one in found.verdict.regressions]
    assert kinds == (["turned"] if expected == "turned" else [])


def test_equal_norms_are_not_equal_gradients():
    base = of_gradients([0.6, 0.8, 0.0, 0.0])
    assert changes(compared(base, of_gradients([0.8, 0.6, 0.0, 0.0]))) == {"0.weight": "within"}
    assert changes(compared(base, of_gradients([0.6, -0.8, 0.0, 0.0]))) == {"0.weight": "turned"}
    assert changes(compared(base, of_gradients([0.6, 0.8, 0.0, 0.0]))) == {"0.weight": "equal"}


def test_gradients_that_only_one_side_has_kept_tell_nothing():
    found = compared(of_gradients([1.0, 0.0, 0.0, 0.0]), of_step({"0.weight": 1.0}))
    assert found.parameters[0].pairs[1].cosine is None
    assert found.directions[1].total is None


def test_runs_are_compared_in_the_first_step_that_both_have_kept():
    """Later ones have other weights, and with them other gradients."""
    first, second = [1.0, 0.0, 0.0, 0.0], [0.0, 1.0, 0.0, 0.0]
    base, other = (
        of_run({"w": [1.0] * 3}, [1.0] * 3, stored_gradients=tuple(kept(*one) for one in gradients))
        for gradients in (
            [(first, 0, 1), (first, 0, 2)],
            [(second, 0, 0), (first, 0, 1), (second, 0, 2)],
        )
    )
    found = compared(base, other)
    assert found.directions[1].steps == (1,)
    assert found.parameters[0].pairs[1].cosine == 1.0
    assert compared(base, other, step=2).parameters[0].pairs[1].cosine == 0.0
    assert compared(base, other, step=0).parameters[0].pairs[1].cosine is None


def test_parameters_of_optimizers_that_take_turns_have_first_steps_of_their_own():
    values = [1.0, 2.0, 3.0, 4.0]
    run = of_run(
        {"g": [None, 1.0], "d": [1.0, None]},
        [1.0, 1.0],
        stored_gradients=(kept(values, 1, 0), kept(values, 0, 1)),
    )
    found = compared(run, run)
    assert [one.pairs[1].cosine for one in found.parameters] == [1.0, 1.0]
    assert found.directions[1].steps == (0, 1)
