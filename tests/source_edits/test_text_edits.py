import subprocess

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gradscope.recording.finding import Edit, Position
from gradscope.source_edits.text_edits import (
    applied,
    diff_of,
    edits_between,
    line_before,
    lines_of,
    overlap,
)

FILE = "/folder/model.py"
TEXTS = st.text(alphabet="ab \n\r\f\u2028é", max_size=30)


def edit(start, end, replacement, file=FILE):
    return Edit(
        file=file,
        start=Position(line=start[0], column=start[1]),
        end=Position(line=end[0], column=end[1]),
        replacement=replacement,
    )


@given(TEXTS, TEXTS)
def test_edits_turn_one_text_into_the_other(before, after):
    edits = edits_between(FILE, before, after)
    assert applied(before, edits) == after
    assert not overlap(edits)
    assert (edits == ()) == (before == after)


def test_an_edit_is_as_short_as_possible():
    (found,) = edits_between(FILE, "a = f(x)\nb = 2\n", "a = f(x.g())\nb = 2\n")
    assert found == edit((1, 8), (1, 8), ".g()")


def test_lines_are_those_of_python():
    assert lines_of("a\r\nb\rc\x0cd\u2028e\n\nf") == ["a\r\n", "b\r", "c\x0cd\u2028e\n", "\n", "f"]


def test_several_edits_are_applied_at_their_own_positions():
    text = "one\ntwo\nthree\n"
    edits = [edit((3, 1), (3, 6), "3"), edit((1, 4), (1, 4), "!\nand"), edit((2, 1), (2, 4), "2")]
    assert applied(text, edits) == "one!\nand\n2\n3\n"


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [
        (((1, 1), (1, 3)), ((1, 2), (1, 4)), True),
        (((1, 1), (1, 3)), ((1, 3), (1, 4)), False),
        (((1, 1), (1, 1)), ((1, 1), (1, 2)), True),
        (((1, 1), (2, 1)), ((1, 5), (1, 5)), True),
        (((1, 1), (1, 2)), ((2, 1), (2, 2)), False),
    ],
)
def test_edits_overlap_if_they_change_the_same_characters(first, second, expected):
    edits = [edit(*first, "x"), edit(*second, "y")]
    assert overlap(edits) is expected
    assert overlap([edits[0], edit(*second, "y", "/other.py")]) is False
    assert overlap([edits[0], edits[0]]) is False  # two findings with the same fix


def test_whole_lines_at_one_position_do_not_overlap_and_stay_in_order():
    lines = [edit((2, 1), (2, 1), "a()\n"), edit((2, 1), (2, 1), "b()\n")]
    assert not overlap(lines)
    assert applied("one\ntwo\n", lines) == "one\na()\nb()\ntwo\n"
    assert applied("one\ntwo\n", lines[::-1]) == "one\nb()\na()\ntwo\n"
    assert overlap([lines[0], edit((2, 1), (2, 4), "b()")])
    assert overlap([edit((2, 2), (2, 2), "a\n"), edit((2, 2), (2, 2), "b\n")])


def test_lines_of_an_edited_file_are_mapped_back():
    before = "a\nb\nc\nd\ne\n"
    after = "a\nnew\nb\nd2\nd3\ne\n"
    edits = edits_between(FILE, before, after)
    lines = {line: line_before(FILE, line, edits) for line in (1, 3, 6)}
    assert lines == {1: 1, 3: 2, 6: 5}
    assert line_before("/other.py", 6, edits) == 6


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("a\nb\n", "a\nc\n"),
        ("a\r\nb\r\n", "a\r\nnew\r\nb\r\n"),
        ("a\nb", "a\nc"),
        ("a\n\x0cb\n", "a\n\x0cc\n"),
    ],
)
def test_git_applies_the_diff(before, after, tmp_path):
    file = tmp_path / "model.py"
    file.write_bytes(before.encode())
    edits = edits_between(str(file), before, after)
    diff = diff_of(edits, lambda _: before, lambda _: "model.py")
    text = f"error[GS702] at model.py:2\n{diff}\nverified: GS702 gone\n"
    subprocess.run(
        ["git", "apply", "-"], input=text.encode(), cwd=tmp_path, check=True, capture_output=True
    )
    assert file.read_bytes() == after.encode()
