"""Numbers of a page are written as those in the sentences of a report."""

import random
from importlib.resources import files

import pytest

from gradscope.phrasing import aligned, short
from tests.nightly import some_on_push

SCRIPT = (files("gradscope.report.html") / "assets" / "number_format.js").read_text("utf-8")


@pytest.mark.nightly
@pytest.mark.parametrize("digits", some_on_push([3, 6], 2))
def test_a_page_writes_numbers_as_sentences_do(open_page, write_page, digits):
    draw = random.Random(0)
    values = [10 ** draw.uniform(-12, 12) * draw.choice((1, -1)) for _ in range(2000)]
    values += [0.0, 1.0, 0.5, 9.996, 999.6, 1234.4, 99_949, 99_951, 1e-4, 9.9996e-5, 1e300]
    page = open_page(write_page("<p>"))
    script = f"values => {{ {SCRIPT}; return values.map(value => figure(value, {digits})) }}"
    assert page.evaluate(script, values) == [short(value, digits) for value in values]


def test_columns_of_a_page_have_the_zeros_at_the_end_as_tables_do(open_page, write_page):
    draw = random.Random(1)
    values = [round(10 ** draw.uniform(-12, 12), draw.randrange(14)) for _ in range(2000)]
    values += [0.0, 1.0, 0.12, 9.996, 999.6, 1200.0, 99_951, 1e-4, 1e300]
    page = open_page(write_page("<p>"))
    script = f"values => {{ {SCRIPT}; return values.map(value => aligned(value)) }}"
    assert page.evaluate(script, values) == [aligned(value) for value in values]
