"""The budget of recording, on a clock of its own."""

from itertools import pairwise

import pytest

from gradscope.capture.training.pacing.budget import LEAST, REPEATED_STEP, Budget

SHARE = 0.05
MEASURED = 1e-3
"""Seconds that measuring the norms of a step takes."""


@pytest.fixture
def trained():
    """Train a number of steps that take so many seconds by themselves; return what was measured."""

    def train(steps, seconds):
        now = [0.0]
        budget = Budget(SHARE, lambda: now[0])
        budget.step_ended("measured")
        measured = []
        for step in range(steps):
            now[0] += seconds
            if budget.affords_norms():
                measured.append(step)
                now[0] += MEASURED
                budget.spend(MEASURED)
                budget.step_ended("measured")
            else:
                now[0] += REPEATED_STEP
                budget.repeated_steps_ended(1)
        return budget, measured

    return train


def test_norms_of_short_steps_are_measured_until_the_end(trained):
    seconds = REPEATED_STEP / SHARE / 2  # comparing a step costs twice the budget
    budget, measured = trained(20_000, seconds)
    # It takes so many steps until the reserve pays for a measurement.
    apart = MEASURED / (LEAST * SHARE * seconds)
    late = [step for step in measured if step > 1_000]
    gaps = [after - before for before, after in pairwise(late)]
    assert late[-1] > 20_000 - 2 * apart
    assert min(gaps) >= apart - 1
    assert max(gaps) <= 1.2 * apart
    bare = 20_000 * seconds
    assert budget.spent <= 20_000 * REPEATED_STEP + (1 + LEAST) * SHARE * bare


def test_the_budget_holds_where_comparing_steps_costs_little(trained):
    budget, measured = trained(20_000, 0.01)
    assert len(measured) > 1_000
    assert budget.spent_share == pytest.approx(SHARE, rel=0.05)
