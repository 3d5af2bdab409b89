"""Norms of parameters over the steps of a run, against plain loops over every number."""

import dataclasses
import math
import random
import statistics

import pytest

from gradscope.analysis.layers import parameter_courses
from gradscope.recording.norm_table import NOT_MEASURED, NormTable
from tests.recording.recordings import small

PARAMETERS = 5


def rows_of_a_run(seed):
    """Steps with changing parameters, missing gradients, zeros, NaN and infinities."""
    draw = random.Random(seed)
    for step in range(40):
        count = PARAMETERS if step % 7 else draw.randrange(1, PARAMETERS)
        yield [
            (
                step,
                parameter,
                "gradient",
                draw.choice([draw.random()] * 9 + [NOT_MEASURED, 0.0, math.nan, math.inf][seed:]),
                draw.choice([1.0 + draw.random(), 0.0]),
                draw.random() if step % 3 == 0 else NOT_MEASURED,
            )
            for parameter in range(count)
        ]


@pytest.fixture(params=[0, 2, 4], ids=["all values", "broken", "plain"])
def rows(request):
    return list(rows_of_a_run(request.param))


def median(values):
    return statistics.median(values) if values else None


def test_a_course_is_that_of_every_single_number(rows):
    table = NormTable.of_rows(rows, dict.fromkeys(range(PARAMETERS), 1))
    found = parameter_courses(dataclasses.replace(small(), parameter_stats=table))
    for parameter in range(PARAMETERS):
        own = [row for batch in rows for row in batch if row[1] == parameter]
        norms = [(row[0], row[3]) for row in own]
        finite = [(step, norm) for step, norm in norms if math.isfinite(norm) and norm >= 0]
        broken = [step for step, norm in norms if not math.isfinite(norm)]
        ratios = [row[5] / row[4] for row in own if row[5] >= 0 and row[4]]
        course = found[parameter]
        assert course.middle == median([norm for _, norm in finite])
        assert (course.largest_step, course.largest) == max(
            finite, key=lambda one: one[1], default=(None, None)
        )
        assert course.first_nonfinite == (broken[0] if broken else None)
        assert course.without == [norm for _, norm in norms].count(NOT_MEASURED)
        assert course.zero == [norm for _, norm in norms].count(0.0)
        assert course.update == median(ratios)
        last = norms[-1][1]
        assert course.last == pytest.approx(None if last < 0 else last, nan_ok=True)


def test_steps_that_measure_the_same_have_one_set_of_parameters(rows):
    table = NormTable.of_rows(rows, dict.fromkeys(range(PARAMETERS), 1))
    for step, batch in enumerate(rows):
        assert table.with_gradient(step) == {row[1] for row in batch if not row[3] < 0}
        assert table.with_gradient(step) == table.with_gradient(step)
