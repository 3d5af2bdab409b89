"""All sides relative to the base, cell by cell, against the norms that were given."""

import math

from hypothesis import given
from hypothesis import strategies as st

from gradscope.report.html.charts.comparison.sides import compared_sides, shown_rows
from tests.comparison.sides import compared, of_step
from tests.report.html.charts.test_compared import NORMS, given_norm
from tests.report.html.figures import assert_valid, shown, trace

MODELS = st.lists(st.lists(NORMS, min_size=3, max_size=3), min_size=1, max_size=6)


def compared_models(models):
    """The comparison of three models, given the norms of each parameter."""
    return compared(
        *(
            of_step(
                {f"blocks.{at}.weight": given_norm(norms[turn]) for at, norms in enumerate(models)}
            )
            for turn in range(3)
        )
    )


@given(MODELS)
def test_every_ratio_is_a_cell_and_the_rest_is_told_apart(models):
    comparison = compared_models(models)
    chart = compared_sides(comparison, 0.1)
    figure = shown(chart)
    assert_valid(chart)
    assert figure["data"][0]["x"] == ["B", "C"]
    cells = trace(figure, "ratio")["z"]
    for one, line in zip(comparison.parameters, cells, strict=True):
        for pair, cell in zip(one.pairs[1:], line, strict=True):
            ratio = pair.ratio
            if ratio is None or not 0 < ratio < math.inf:
                assert cell is None
            else:
                assert math.isclose(cell, math.log10(ratio), rel_tol=1e-6, abs_tol=1e-37)
    changes = {"not finite": "non-finite", "zero": "zero"}
    for name, change in changes.items():
        expected = [
            [1.0 if pair.change == change else None for pair in one.pairs[1:]]
            for one in comparison.parameters
        ]
        found = [each["z"] for each in figure["data"] if each["name"] == name]
        assert found == ([expected] if any(1.0 in line for line in expected) else [])


def test_rows_select_their_parameter_in_the_table():
    comparison = compared_models([[1.0, 1.0, 1.0], [1.0, 9.0, 1.0], [1.0, 1.0, None]])
    figure = shown(compared_sides(comparison, 0.1))
    rows = trace(figure, "ratio")["meta"]["rows"]
    # In the table, what lost its gradient is the first, and then what grew.
    assert rows["parameter"] == [2, 1, 0]
    modules = comparison.sides[0].report.modules
    assert [modules[at].path for at in rows["module"]] == ["blocks.0", "blocks.1", "blocks.2"]


def test_of_many_parameters_those_that_changed_most_are_drawn_in_the_models_order():
    models = [[1.0, 5.0 if at in (7, 3) else 1.0, 1.0] for at in range(12)]
    rows = shown_rows(compared_models(models), most=2)
    assert [one.name for _, one in rows] == ["blocks.3.weight", "blocks.7.weight"]


def test_names_of_one_label_are_rows_of_their_own():
    name = "very_long" * 30
    sides = [of_step({f"{name}.{middle}.{name}.weight": 1.0 for middle in "ab"}) for _ in range(3)]
    labels = shown(compared_sides(compared(*sides), 0.1))["data"][0]["y"]
    assert len(set(labels)) == 2 and all(len(label) < 60 for label in labels)
