"""Findings that came, went and stayed."""

from dataclasses import replace

import pytest

from tests.comparison.sides import SITE, compared, finding, of_step, reported

MODEL = of_step({"a.weight": 1.0, "b.weight": 1.0})


def standings(*sides):
    """The rule of each cause, and what became of it in each other side."""
    found = compared(*(reported(MODEL, *findings) for findings in sides))
    return [
        (one.first[1].rule, *(one.standing(position) for position in range(1, len(sides))))
        for one in found.findings
    ]


def test_came_went_and_stayed():
    kept, gone, new = finding("GS201"), finding("GS105", "warning"), finding("GS103")
    assert standings([kept, gone], [new, kept]) == [
        ("GS103", "came"), ("GS201", "stayed"), ("GS105", "went"),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [("note", "error", "worse"), ("error", "warning", "milder"), ("note", "note", "stayed")],
)
def test_levels(before, after, expected):
    assert standings([finding(severity=before)], [finding(severity=after)]) == [("GS201", expected)]


def test_each_other_side_is_compared_with_the_base():
    one, two = finding("GS201"), finding("GS103")
    assert standings([one], [one, two], [two], []) == [
        ("GS103", "came", "came", None), ("GS201", "stayed", "went", "went"),
    ]  # fmt: skip


def test_a_cause_that_moved_to_another_file_stays():
    old = finding(parameters=("a.weight",), fingerprint="1")
    moved = replace(old, fingerprint="2", location=replace(SITE, file="/elsewhere/after.py"))
    assert standings([old], [moved]) == [("GS201", "stayed")]


def test_another_cause_of_the_same_rule_is_new():
    """Near miss: neither its line nor its parameters are those of the old one."""
    old = finding(parameters=("a.weight",), fingerprint="1")
    other = replace(
        old, parameters=("b.weight",), fingerprint="2",
        location=replace(SITE, line=9, source="y = y.item()"),
    )  # fmt: skip
    assert standings([old], [other]) == [("GS201", "went"), ("GS201", "came")]


def of_renamed(prefix, name, fingerprint, **changes):
    model = of_step({f"{prefix}.a.weight": 1.0, f"{prefix}.b.weight": 1.0})
    found = finding(parameters=(f"{prefix}.{name}",), fingerprint=fingerprint, **changes)
    return reported(model, found)


def test_parameters_of_a_renamed_model_are_known_by_the_names_of_the_base():
    base = of_renamed("model", "a.weight", "1")
    elsewhere = replace(SITE, source="another line")
    same = of_renamed("net", "a.weight", "2", location=elsewhere)
    other = of_renamed("net", "b.weight", "2", location=elsewhere)
    assert [one.standing(1) for one in compared(base, same).findings] == ["stayed"]
    assert {one.standing(1) for one in compared(base, other).findings} == {"went", "came"}


def test_two_findings_of_one_fingerprint_are_two():
    first = finding(parameters=("a.weight",))
    second = finding(parameters=("b.weight",))
    assert standings([first], [first, second]) == [("GS201", "stayed"), ("GS201", "came")]
    assert standings([first, second], [first, second]) == [
        ("GS201", "stayed"), ("GS201", "stayed"),
    ]  # fmt: skip
