"""Parameters of Python functions: documented, checked and defaulted as their options declare."""

import inspect
import re
from dataclasses import dataclass
from typing import Annotated

import pytest

import gradscope
from gradscope.launch.options import WatchOptions
from gradscope.options.declaration import Option, declarations
from gradscope.session.arguments import documented
from gradscope.target.options import TargetOptions, Trial
from gradscope.testing import assert_gradients_healthy

DECLARED = {
    gradscope.inspect: (Trial, TargetOptions),
    gradscope.watch: (WatchOptions,),
    assert_gradients_healthy: (Trial, TargetOptions),
}
OBJECTS = ("model", "batch", "optimizer", "grad_output", "budget")
"""Parameters that take an object or a number where the command line takes a text."""

by_function = pytest.mark.parametrize("function", DECLARED, ids=lambda one: one.__name__)


@dataclass(frozen=True, kw_only=True)
class Bends:
    angle: Annotated[int, Option(help="Bend by N degrees.", min=0)] = 90
    count: Annotated[int, Option(help="Bend N times.", python="Number of bends. " * 9)] = 1


def test_declared_parameters_stand_in_the_order_of_the_signature():
    @documented(Bends)
    def bend(angle, wire, count):
        """Bend a wire.

        Args:
            wire: Any wire,
                of any length.

        Raises:
            ValueError: It broke.
        """

    line, *more = inspect.getdoc(bend).splitlines()
    assert (line, more[:4]) == (
        "Bend a wire.",
        ["", "Args:", "    angle: Bend by N degrees.", "    wire: Any wire,"],
    )
    assert more[4:6] == ["        of any length.", "    count: " + ("Number of bends. " * 5)[:-1]]
    assert more[6:] == ["        " + ("Number of bends. " * 4)[:-1], "", "Raises:",
                        "    ValueError: It broke."]  # fmt: skip


@by_function
def test_every_parameter_is_documented_once(function):
    args = inspect.getdoc(function).partition("Args:\n")[2].partition("\n\n")[0]
    assert re.findall(r"^    (\w+):", args, re.MULTILINE) == list(
        inspect.signature(function).parameters
    )
    assert max(map(len, args.splitlines())) <= 96


@by_function
def test_default_in_python_is_that_of_the_option(function):
    parameters = inspect.signature(function).parameters
    declared = [one for kind in DECLARED[function] for one in declarations(kind).values()]
    shared = [one for one in declared if one.field in parameters and one.field not in OBJECTS]
    assert len(shared) >= 3
    for one in shared:
        assert parameters[one.field].default == one.default, one.field
