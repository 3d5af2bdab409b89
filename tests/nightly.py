"""Chooses the cases that each push tests; the others are tested nightly."""

import json
from collections.abc import Container, Iterable
from pathlib import Path

import pytest


def some_on_push(values: Iterable[object], which: Container[int] | int) -> list[object]:
    """Return the values as parameters of a test.

    Args:
        values: Values, tuples of values, or `pytest.param`.
        which: The positions of those that a push tests; a number n for every n-th.
    """
    return [
        value
        if (position % which == 0 if isinstance(which, int) else position in which)
        else _nightly(value)
        for position, value in enumerate(values)
    ]


def _nightly(value: object) -> object:
    if isinstance(value, type(pytest.param())):
        return value._replace(marks=(*value.marks, pytest.mark.nightly))
    return pytest.param(
        *(value if isinstance(value, tuple) else (value,)), marks=pytest.mark.nightly
    )


CASES_FILE = Path(__file__).parent / "data" / "nightly_cases.json"


def cases_of_the_night() -> dict[str, list[str]]:
    """Return by test the cases that `tests/push_selection.py` has left out of a push."""
    return json.loads(CASES_FILE.read_text(encoding="utf-8"))


def leave_to_the_night(items: Iterable[pytest.Item]) -> None:
    """Mark these cases."""
    cases = {f"{test}[{case}]" for test, some in cases_of_the_night().items() for case in some}
    for item in items:
        if item.nodeid in cases:
            item.add_marker(pytest.mark.nightly)
