"""Chooses the cases that each push tests; the others are tested nightly."""

from collections.abc import Container, Iterable

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
