import re
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gradscope.report.ci.github import escaped_message, escaped_property, render_github
from tests.report.ci.conftest import (
    checked,
    failures,
    finding,
    healthy,
    many,
    outside,
    real,
    related,
    result_of,
    seeds,
    target_with,
)

LEVELS = {"error": "error", "warning": "warning", "notice": "note"}
COMMAND = re.compile(r"::(?P<name>\w+) ?(?P<properties>.*?)::(?P<message>.*)", re.ASCII)


def unescaped(text, *, is_property):
    """Undo it in the order of GitHub's runner: the per cent sign comes last."""
    codes = {"%0D": "\r", "%0A": "\n"} | ({"%3A": ":", "%2C": ","} if is_property else {})
    for code, sign in codes.items():
        text = text.replace(code, sign)
    return text.replace("%25", "%")


def commands(result):
    """Parse the lines as GitHub's runner does; each but the verdict has to be a command."""
    text = render_github(result)
    text.encode()
    found = []
    lines = text.split("\n") if text else []
    if result.policy is not None:
        assert lines.pop().startswith(("Passed", "Failed", "Could not check"))
    for line in lines:
        assert line.isprintable()
        match = COMMAND.fullmatch(line)
        assert match is not None, line
        given = (part.split("=", 1) for part in match["properties"].split(","))
        properties = {key: unescaped(value, is_property=True) for key, value in given}
        assert set(properties) <= {"file", "line", "title"}
        message = unescaped(match["message"], is_property=False)
        found.append((LEVELS[match["name"]], properties, message))
    return found


def test_every_situation_keeps_to_the_limits(situation):
    found = commands(situation)
    for level in LEVELS.values():
        assert sum(one == level for one, _, _ in found) <= 10
    for _, properties, message in found:
        assert properties["title"].startswith("gradscope")
        assert 0 < len(message) <= 4001
        assert ("file" in properties) == ("line" in properties)
        if "file" in properties:
            assert not properties["file"].startswith(("/", "./", "../"))
            assert int(properties["line"]) >= 1
    order = [list(LEVELS.values()).index(level) for level, _, _ in found]
    assert order == sorted(order)


def test_nothing_found_is_no_annotation():
    assert render_github(healthy()) == "Passed: no findings in 1 target."
    assert render_github(replace(healthy(), policy=None)) == ""


def test_real_finding_says_where_what_and_how():
    ((level, properties, message),) = commands(real())
    assert level == "error"
    assert properties == {
        "file": "sample_models/gradient_cut.py",
        "line": "23",
        "title": "gradscope (GS201 gradient-cut)",
    }
    first, *others = message.split("\n")
    assert "detach() cuts it off" in first
    assert others[0].startswith("sample_models/gradient_cut.py:17: ")
    assert others[-1].startswith("help: ")


def test_known_findings_are_left_out():
    result = result_of(target_with(*checked(finding(0)), *checked(finding(1), is_known=True)))
    assert [properties["line"] for _, properties, _ in commands(result)] == ["12"]


@pytest.mark.parametrize(("count", "shown"), [(9, 9), (10, 10), (11, 9), (500, 9)])
def test_more_than_ten_are_summed_up(count, shown):
    result = result_of(target_with(*checked(*map(finding, range(count)))))
    found = commands(result)
    assert [properties.get("line") for _, properties, _ in found[:shown]] == [
        str(12 + number) for number in range(shown)
    ]
    if count > shown:
        _, properties, message = found[-1]
        assert "file" not in properties
        assert f"and {count - 9} more errors" in message
        assert f"GS201 gradient-cut ({count - 9}): src/model.py:21, src/model.py:22" in message
        assert len(found) == 10


def test_every_rule_is_shown_before_any_has_nine():
    found = [finding(number) for number in range(20)]
    last = finding(20, rule="GS105", name="dead-unit")
    titles = [
        properties["title"]
        for _, properties, _ in commands(result_of(target_with(*checked(*found, last))))
    ]
    assert titles == [
        *["gradscope (GS201 gradient-cut)"] * 8,
        "gradscope (GS105 dead-unit)",
        "gradscope",
    ]


def test_levels_are_counted_apart():
    found = commands(many(60))
    assert [sum(one == level for one, _, _ in found) for level in LEVELS.values()] == [10] * 3
    assert "and 11 more warnings" in found[19][2]


def test_failures_come_first_and_take_room():
    found = commands(failures())
    assert len(found) == 6
    _, properties, message = found[0]
    assert properties == {"title": "gradscope"}
    assert message.split("\n") == [
        "could not check src/model.py:Net(3) (seeds 0, 1): the forward raised",
        "cause: Traceback",
        "  line",
        "Error: 5%",
        "help: fix it",
    ]
    assert found[1][2] == "could not check src/model.py:Net(3) (seed 2): it hung"
    findings = checked(*map(finding, range(12)))
    (broken, *_) = failures().targets
    both = commands(result_of(broken, target_with(*findings)))
    assert [properties["title"] == "gradscope" for _, properties, _ in both] == (
        [True] * 2 + [False] * 7 + [True]
    )
    assert "and 5 more errors" in both[-1][2]


def test_finding_without_a_line_in_the_repository_has_no_file():
    found = commands(outside())
    first_without, message = found[0][1], found[0][2]
    assert "file" not in first_without
    assert "the cause is torch/nn/functional.py:7, outside the repository" in message
    with_file = [properties for _, properties, _ in found if "file" in properties]
    assert {(one["file"], one["line"]) for one in with_file} == {("src/model.py", "40")}


def test_other_lines_are_told():
    one = finding(related=(related(line=8, message="the last that learns"),))
    ((_, _, message),) = commands(result_of(target_with(*checked(one))))
    assert "src/model.py:8: the last that learns" in message


def test_targets_and_seeds_are_told_where_there_are_several():
    found = commands(seeds())
    assert "target: other.module:build(3)\nseeds: all 3" in found[1][2]
    assert "seeds: 1 of 3: 1" in found[3][2]


def test_stale_entries_are_notices_or_errors():
    def level(**changes):
        ((level, _, message),) = commands(result_of(target_with(), stale=("GS201 x",), **changes))
        assert "GS201 x" in message
        return level

    assert level() == "note"
    assert level(stale_fails=True) == "error"


@given(st.text())
def test_escapes_can_be_undone(text):
    for escaped, is_property in ((escaped_message, False), (escaped_property, True)):
        spelled = escaped(text)
        assert unescaped(spelled, is_property=is_property) == text
        assert not set("\r\n") & set(spelled)
    assert not set(":,") & set(escaped_property(text))
