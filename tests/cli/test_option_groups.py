"""Options of commands as objects, through typer."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import pytest
import typer
from typer.testing import CliRunner

from gradscope.cli.options import with_groups
from gradscope.cli.program import _typed
from gradscope.options.declaration import Argument, Option, Overrides


@dataclass(frozen=True, kw_only=True)
class Walls:
    colour: Annotated[str, Option(help="Colour.")] = "white"
    coats: Annotated[int, Option(help="Coats.", min=1)] = 2
    is_dry: Annotated[bool, Option("--dry/--no-dry", help="Dry.")] = True
    layers: Annotated[tuple[str, ...], Option("--layer", help="Layers.")] = ()
    file: Annotated[Path | None, Option("--swatch", help="Swatch.")] = None
    room: str = "hall"


@dataclass(frozen=True, kw_only=True)
class Floor:
    wood: Annotated[str, Option(help="Wood.")] = "oak"
    is_waxed: Annotated[bool, Option("--wax", help="Wax it.")] = False
    area: float = 3.0


@pytest.fixture
def called():
    seen = {}
    app = typer.Typer()

    @with_groups
    def paint(
        *,
        house: Annotated[str, Argument(metavar="HOUSE")],
        walls: Annotated[Overrides, Walls],
        floor: Floor,
        quick: Annotated[bool, Option(help="Quick.")] = False,
    ) -> None:
        """Paint a house."""
        seen.update(house=house, walls=walls, floor=floor, quick=quick)

    app.command()(_typed(paint))

    def call(*words):
        result = CliRunner().invoke(app, list(words))
        return seen if result.exit_code == 0 else result.exit_code

    return call


def test_without_options_nothing_is_overridden_and_defaults_hold(called):
    assert called("h") == {"house": "h", "walls": {}, "floor": Floor(), "quick": False}


def test_given_options_come_by_their_configuration_keys(called):
    line = "h --colour red --coats 1 --no-dry --layer a --layer b --swatch x.png"
    assert called(*line.split())["walls"] == {
        "colour": "red", "coats": 1, "dry": False, "layer": ("a", "b"), "swatch": "x.png",
    }  # fmt: skip


def test_dataclass_comes_as_an_instance(called):
    seen = called("h", "--wood", "ash", "--wax", "--quick")
    assert (seen["floor"], seen["quick"]) == (Floor(wood="ash", is_waxed=True), True)


@pytest.mark.parametrize("words", ["--coats 0", "--coats x", "--room x", "--area 2"])
def test_bounds_hold_and_plain_fields_are_no_options(called, words):
    assert called("h", *words.split()) == 2
