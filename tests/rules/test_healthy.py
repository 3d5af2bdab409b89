"""No false alarms: healthy code that looks sick is never accused of an error, and hardly warned of.

The real architectures are judged in `tests/test_architectures.py`.
"""

import pytest

import gradscope
from tests.nightly import some_on_push
from tests.rules.lookalikes import LOOKALIKES
from tests.rules.tally import Tally, errors

every_lookalike = pytest.mark.parametrize(
    "case", some_on_push([pytest.param(case, id=case.name) for case in LOOKALIKES], 6)
)


@pytest.fixture(scope="module")
def tally():
    return Tally()


@every_lookalike
def test_code_that_looks_sick_is_accused_of_no_error(case, tally):
    step = case.build()
    report = gradscope.inspect(step.model, step.batch, step.loss_fn, optimizer=step.optimizer)
    tally.add(case.name, step.model, report.findings)
    assert errors(report.findings) == []


def test_warnings_of_healthy_code_are_rare(tally):
    tally.check()
