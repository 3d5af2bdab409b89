"""What is measured of each side, and what is known to differ between them."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gradscope.comparison.side import letter_of, rank_of_file
from gradscope.errors import GradscopeError
from gradscope.recording.records import NodeRecord, Shape
from tests.comparison.sides import GivenGradient, compared, of_run, of_step

RUN = of_run({"w": [1.0, 2.0, 4.0]}, [3.0, 2.0, 1.0])


@given(st.sets(st.integers(0, 5000), min_size=2, max_size=50))
def test_letters_are_as_those_of_a_spreadsheet(positions):
    letters = [letter_of(position) for position in sorted(positions)]
    assert len({*letters}) == len(letters)
    assert letters == sorted(letters, key=lambda one: (len(one), one))


def test_first_letters():
    assert [letter_of(position) for position in (0, 1, 25, 26, 27, 51, 52, 701, 702)] == (
        ["A", "B", "Z", "AA", "AB", "AZ", "BA", "ZZ", "AAA"]
    )


@pytest.mark.parametrize(
    ("name", "rank"),
    [("a.rank0.gradscope", ("a", 0)), ("x/a.rank12.gradscope", ("x/a", 12)), ("a.gradscope", None),
     ("model.py", None), ("a.rank1", None)],
)  # fmt: skip
def test_ranks_are_told_by_the_name_of_the_file(name, rank):
    assert rank_of_file(name) == rank


def test_one_step_of_a_run_is_its_own_numbers():
    found = compared(RUN, RUN, step=1)
    side = found.sides[0]
    assert (side.step, side.loss, side.parameters[0].norm, found.steps) == (1, 2.0, 2.0, 1)


def test_a_judged_step_is_compared_with_the_step_of_a_run_of_that_number():
    found = compared(of_step({"w": 1.0}, loss=3.0), RUN)
    assert [side.step for side in found.sides] == [0, 0]
    assert found.parameters[0].pairs[1].ratio == 1.0
    assert found.verdict.outcome == "passed"


@pytest.mark.parametrize(
    ("sides", "step", "message"),
    [
        ((RUN, RUN), 3, "not every run has step 3"),
        ((RUN, of_run({"w": [1.0]}, [1.0], first=9)), None, "have no step in common"),
        (
            (of_step({"w": 1.0}), of_step({"w": 1.0})),
            0,
            "--step needs a recording of a training run",
        ),
        ((of_step({"w": 1.0}), of_run({"w": [1.0]}, [1.0], first=9)), None, "has step 0"),
    ],
)
def test_steps_that_are_not_there_are_told(sides, step, message):
    with pytest.raises(GradscopeError, match=message):
        compared(*sides, step=step)


def differences(*sides):
    return {one.what: one.values for one in compared(*sides).differences}


def test_recordings_made_alike_differ_in_nothing():
    assert differences(RUN, RUN) == differences(of_step({"w": 1.0}), of_step({"w": 2.0})) == {}


def test_what_differs_in_their_making():
    base = of_step({"w": 1.0})
    other = of_step(
        {"w": GivenGradient(norm=1.0, dtype="bfloat16")},
        environment=replace(base.environment, torch="2.14.0", threads=8),
        target=replace(base.target, seed=1, batch="bfloat16[4, 2]"),
    )
    assert differences(base, other) == {
        "seed": ("0", "1"), "dtype": ("float32", "bfloat16"), "torch": ("2.13.0", "2.14.0"),
        "batch": ("float32[8, 2]", "bfloat16[4, 2]"), "threads": ("1", "8"),
    }  # fmt: skip


def test_types_that_are_computed_in_are_told_beside_those_of_the_parameters():
    """As under autocast."""
    base = of_step({"w": 1.0})
    node = NodeRecord(
        index=0, graph=0, operation="AddmmBackward0", kind="operation", depth=0, sequence=0,
        module_call=None, site=None, outputs=(Shape(dims=(2,), dtype="bfloat16"), None),
        parameter=None,
    )  # fmt: skip
    assert differences(base, replace(base, nodes=(node,))) == {
        "dtype": ("float32", "float32 with bfloat16")
    }


def test_arguments_of_a_script_are_what_follows_its_name():
    plain = "gradscope run --save a.gradscope train.py"
    sides = [replace(RUN, command=text) for text in (plain, f"{plain} --lr 0.1 'a b'")]
    assert differences(*sides) == {"arguments": ("", "--lr 0.1 'a b'")}
