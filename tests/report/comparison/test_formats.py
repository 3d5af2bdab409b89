"""A comparison in every format: whatever the names, at any width, and by its schema."""

import io
import json
import math
import re
from dataclasses import replace
from importlib.resources import files

import jsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from gradscope.errors import GradscopeError
from gradscope.report.render import render_comparison
from tests.comparison.sides import SITE, GivenGradient, compared, finding, of_run, of_step, reported

SCHEMA = json.loads(files("gradscope").joinpath("schemas/compare-1.json").read_text())
CHECK = json.loads(files("gradscope").joinpath("schemas/check-1.json").read_text())
TEXTS = ("full", "concise", "markdown")
HOSTILE = ["</script>", "[/x]", "a\nb", "\x1b[31m", "`|`", "é¶🐍", "x" * 3_000, "[bold]", "%s{}"]


def rendered(comparison, output_format="full", width=100, encoding="utf-8", **options):
    stream = io.TextIOWrapper(io.BytesIO(), encoding=encoding)
    console = Console(file=stream, width=width, color_system=None, markup=False, highlight=False)
    return render_comparison(comparison, output_format, console, **options)


def read(text):
    def refuse(constant):
        raise AssertionError(f"{constant} is no JSON")

    value = json.loads(text, parse_constant=refuse)
    jsonschema.Draft202012Validator(SCHEMA).validate(value)
    return value


def steps(**changes):
    """Two recordings of a step, of which the other is worse in everything."""
    base = of_step({"a.weight": 1.0, "b.weight": 2.0, "c.weight": 3.0, "old.bias": 1.0})
    other = of_step(
        {
            "a.weight": GivenGradient(reach="none"),
            "b.weight": GivenGradient(norm=math.nan, nonfinite=2),
            "c.weight": 30.0,
            "new.x.bias": 1.0,
        },
        loss=2.0,
    )
    return compared(reported(base), reported(other, finding(parameters=("a.weight",))), **changes)


def runs(**changes):
    losses = [2.0 / (1 + step) for step in range(30)]
    base = of_run({"w": [1.0 + step for step in range(30)], "v": [1.0] * 30}, losses)
    other = of_run(
        {"w": [2.0 + step for step in range(30)], "v": [None] * 30},
        [loss if step < 20 else math.nan for step, loss in enumerate(losses)],
    )
    third = of_run({"w": [1.0] * 10, "v": [1.0] * 10}, losses[:10])
    return compared(base, other, third, **changes)


def test_schema_shares_what_a_check_has():
    jsonschema.Draft202012Validator.check_schema(SCHEMA)
    assert SCHEMA["$defs"]["number"] == CHECK["$defs"]["number"]
    for name, value in SCHEMA["$defs"]["finding"]["properties"].items():
        assert CHECK["$defs"]["finding"]["properties"][name] == value


@pytest.mark.parametrize("comparison", [steps(), runs(), steps(is_check=True), runs(step=3)])
def test_json_holds_the_comparison_by_its_schema(comparison):
    value = read(rendered(comparison, "json"))
    assert [side["letter"] for side in value["sides"]] == [one.letter for one in comparison.sides]
    numbers = [[side and side["grad_norm"] for side in one["sides"]] for one in value["parameters"]]
    assert numbers == [
        [None if side is None else "NaN" if side.norm != side.norm else side.norm
         for side in one.sides] for one in comparison.parameters
    ]  # fmt: skip
    assert value["verdict"]["outcome"] == comparison.verdict.outcome
    assert [one["kind"] for one in value["verdict"]["regressions"]] == [
        one.kind for one in comparison.verdict.regressions
    ]


@pytest.mark.parametrize("comparison", [steps(), runs()])
def test_json_lines_hold_what_the_object_holds(comparison):
    value = read(rendered(comparison, "json"))
    lines = [json.loads(line) for line in rendered(comparison, "jsonl").splitlines()]
    for kind, key in (("side", "sides"), ("curve", "curves"), ("parameter", "parameters"),
                      ("finding", "findings")):  # fmt: skip
        held = [{name: item for name, item in line.items() if name != "kind"} for line in lines
                if line["kind"] == kind]  # fmt: skip
        assert held == value[key]
    assert lines[1] == {"kind": "verdict", **value["verdict"]}


@pytest.mark.parametrize("name", TEXTS)
def test_texts_tell_what_is_worse_and_by_how_much(name):
    text = rendered(steps(), name, width=140)
    for told in ("GS201", "a.weight", "b.weight", "c.weight", "3.00", "30.0", "10", "old.",
                 "new.x.", "new in B", "1.00", "2.00"):  # fmt: skip
        assert told in text, told
    assert "5 differences exceed" in text


def test_a_gate_says_failed_or_passed():
    assert rendered(steps(is_check=True)).endswith("Failed: 5 regressions.")
    same = of_step({"a.weight": 1.0})
    assert rendered(compared(same, same, is_check=True)).endswith("Passed: no regression.")
    assert rendered(compared(same, same)).endswith("Identical.")


def test_curves_are_on_one_scale_and_say_where_they_part():
    text = rendered(runs(), width=140)
    assert "B: differs from step 20, first by more than 10 % at step 20" in text
    assert "C: equal in all 10 common steps" in text
    assert "non-finite from step 20" in text
    strips = [line for line in text.splitlines() if re.match(r" +(loss)? +[ABC]  [▁-█]", line)]
    first = strips[0].split()[2][:5]
    assert all(first in strip for strip in strips[:3])  # the same losses, drawn alike


@pytest.mark.parametrize("name", TEXTS)
@pytest.mark.parametrize("hostile", HOSTILE)
def test_hostile_names_are_text(name, hostile):
    base = of_step({f"{hostile}.weight": 1.0, f"{hostile}.bias": 1.0})
    other = of_step({f"{hostile}.weight": 9.0, f"{hostile}.bias": 1.0})
    cause = finding(message=hostile, parameters=(f"{hostile}.weight",), remedy=hostile,
                    location=replace(SITE, file=f"/{hostile}.py", source=hostile))  # fmt: skip
    comparison = compared(reported(base), reported(other, cause), names=[hostile, "b"])
    text = rendered(comparison, name)
    assert "\x1b" not in text
    if name == "markdown":
        outside = re.sub(r"(`{3,})python\n.*?\n\1", "", text, flags=re.DOTALL)
        assert "<script" not in outside and "</script" not in outside
    read(rendered(comparison, "json"))


@pytest.mark.parametrize("width", [80, 100, 140, 200])
@pytest.mark.parametrize("comparison", [steps(), runs()])
def test_no_line_is_wider_than_the_page(width, comparison):
    lines = rendered(comparison, width=width).splitlines()
    assert max(map(len, lines)) <= width


@pytest.mark.parametrize("comparison", [steps(), runs()])
def test_ascii_will_do(comparison):
    rendered(comparison, encoding="ascii").encode("ascii")


def test_many_parameters_fold_to_the_worst():
    names = [f"blocks.{position}.weight" for position in range(3_000)]
    base = of_step(dict.fromkeys(names, 1.0))
    other = of_step({name: 2.0 + position for position, name in enumerate(names)})
    text = rendered(compared(base, other))
    assert len(text.splitlines()) < 40
    assert "blocks.2999.weight" in text and "… 2,990 more: --top 3000" in text
    assert len(rendered(compared(base, other), top=50).splitlines()) == (
        len(text.splitlines()) + 40
    )


def test_many_sides_are_told():
    base = of_step({"a.weight": 1.0})
    others = [of_step({"a.weight": 1.0 + position}) for position in range(40)]
    for name in TEXTS:
        text = rendered(compared(base, *others), name, width=80)
        assert max(map(len, text.splitlines())) <= 80 or name != "full"


@given(before=st.floats(allow_nan=True), after=st.floats(allow_nan=True))
def test_any_number_can_be_written(before, after):
    base, other = (
        of_step({"a.weight": GivenGradient(norm=abs(norm))}, loss=norm) for norm in (before, after)
    )
    comparison = compared(base, other)
    for name in TEXTS:
        rendered(comparison, name)
    read(rendered(comparison, "json"))


def test_formats_of_ci_are_not_for_comparisons():
    with pytest.raises(GradscopeError, match="sarif"):
        rendered(steps(), "sarif")
