"""An option as its dataclass declares it: names, key, check and texts."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal, get_args

import pytest

from gradscope.options import checks
from gradscope.options.checks import WrongValue
from gradscope.options.declaration import Option, declarations, field_values


@dataclass(frozen=True, kw_only=True)
class Paint:
    colour: Annotated[Literal["red", "blue"], Option(help="Colour.", shows_default=True)] = "red"
    coats: Annotated[int | None, Option("-n", "--coats", help="Coats.", min=1)] = None
    gloss: Annotated[float, Option(help="Gloss.", min=0.0, shows_default=True)] = 2.0
    is_wet: Annotated[bool, Option("--wet/--no-wet", help="Wet.", python="Whether it is wet.")] = (
        False
    )
    extra_layers: Annotated[tuple[str, ...], Option(help="Layers.", panel="More")] = ()
    file: Annotated[Path | None, Option("--swatch", help="Swatch.")] = None
    shade: Annotated[int, Option(help="Shade.")] = 0
    buyer: Annotated[str | None, Option(help="Buyer.", check=checks.choice("me"))] = None
    brush: str = "wide"


DECLARED = declarations(Paint)


def option_of(key):
    kind, parameter = get_args(DECLARED[key].parameter)
    return kind, parameter.names, parameter.settings["help"]


def test_keys_are_the_long_names_and_other_fields_are_no_options():
    assert list(DECLARED) == [
        "colour", "coats", "gloss", "wet", "extra-layers", "swatch", "shade", "buyer",
    ]  # fmt: skip


def test_command_line_may_leave_every_option_out():
    assert option_of("colour") == (
        Literal["red", "blue"] | None,
        ("--colour",),
        "Colour. Default: red.",
    )
    assert option_of("coats") == (int | None, ("-n", "--coats"), "Coats.")
    assert option_of("gloss") == (float | None, ("--gloss",), "Gloss. Default: 2.")
    assert option_of("wet") == (bool | None, ("--wet/--no-wet",), "Wet.")
    assert option_of("extra-layers")[:2] == (list[str] | None, ("--extra-layers",))


def test_python_gets_its_own_text_where_there_is_one():
    assert DECLARED["wet"].documentation == "Whether it is wet."
    assert DECLARED["colour"].documentation == "Colour."


@pytest.mark.parametrize(
    ("key", "right", "wrong", "why"),
    [
        ("colour", "blue", "green", "has to be one of red, blue, and is `green`"),
        ("coats", 1, 0, "has to be at least 1, and is 0"),
        ("gloss", 0, -0.5, "has to be at least 0, and is -0.5"),
        ("wet", True, "yes", "has to be true or false"),
        ("extra-layers", ("a", ""), "a", "has to be a list of strings"),
        ("swatch", "a.png", " ", "is empty"),
        ("shade", -checks.LARGEST, -checks.LARGEST - 1, "has to be at least -9223372036854775807"),
        ("buyer", "me", "you", "has to be one of me, and is `you`"),
    ],
)
def test_type_and_bounds_give_the_check(key, right, wrong, why):
    assert DECLARED[key].check(right) == right
    with pytest.raises(WrongValue) as raised:
        DECLARED[key].check(wrong)
    assert raised.value.wrong == why


def test_values_by_key_become_values_by_field():
    given = {"wet": True, "swatch": "a.png", "brush": "thin", "seed": 3}
    assert field_values(Paint, given) == {"is_wet": True, "file": "a.png"}


def test_described_option_keeps_everything_but_its_help():
    one = DECLARED["coats"].option.described(help="Layers of paint.")
    assert one.names == ("-n", "--coats")
    assert one.settings == {**DECLARED["coats"].option.settings, "help": "Layers of paint."}
