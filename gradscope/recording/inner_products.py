"""Sums over the elements of two gradients, in double precision."""

from array import array
from collections.abc import Callable
from operator import mul, sub
from typing import NamedTuple


class InnerProducts(NamedTuple):
    """The inner products of two vectors of one length."""

    dot: float
    first: float
    """Inner product of the first vector with itself."""
    second: float
    """Inner product of the second vector with itself."""
    difference: float
    """Inner product of the difference with itself."""


def inner_products(first: "array[float]", second: "array[float]") -> InnerProducts:
    """Return the inner products of two vectors.

    It uses numpy if it is installed: in Python alone, some hundred million elements take minutes.
    """
    found = _by_numpy()
    return found(first, second) if found else in_python(first, second)


def in_python(first: "array[float]", second: "array[float]") -> InnerProducts:
    """Return the inner products of two vectors, about six million elements per second."""
    difference = array("d", map(sub, first, second))
    return InnerProducts(
        dot=sum(map(mul, first, second), 0.0),
        first=_square(first),
        second=_square(second),
        difference=_square(difference),
    )


def _square(values: "array[float]") -> float:
    return sum(map(mul, values, values), 0.0)


def _by_numpy() -> "Callable[[array[float], array[float]], InnerProducts] | None":
    try:
        import numpy
    except ImportError:
        return None

    def found(first: "array[float]", second: "array[float]") -> InnerProducts:
        one, other = (
            numpy.frombuffer(values, dtype=values.typecode).astype(numpy.float64)
            for values in (first, second)
        )
        # Non-finite results are expected here, and need no warning.
        with numpy.errstate(all="ignore"):
            apart = one - other
            products = (one @ other, one @ one, other @ other, apart @ apart)
        return InnerProducts(*map(float, products))

    return found
