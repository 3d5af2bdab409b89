from dataclasses import replace

import pytest

from gradscope.recording.evidence.training import SourceRecord
from gradscope.recording.finding import Finding, RelatedLocation
from gradscope.recording.records import Site
from gradscope.report.snippets import snippets

FILE = "/home/user/project/model.py"
LINES = ("def forward(self, x):", "\tx = self.first(x)", "", "    x = x.detach()", "    return x")


def finding(line=14, source="x = x.detach()", related=(), function="Net.forward"):
    return Finding(
        rule="GS201",
        name="gradient-cut",
        severity="error",
        message="m",
        location=Site(file=FILE, line=line, function=function, source=source),
        related=tuple(related),
        remedy="r",
        fingerprint="f",
    )


@pytest.fixture
def code(recording):
    source = SourceRecord(file=FILE, first=11, lines=LINES)
    return replace(recording, evidence=(source,))


def shown(snippet):
    return [(line.number, line.text) for line in snippet.lines]


def test_two_lines_around_the_cause_without_common_indentation(code):
    (only,) = snippets(finding(), code)
    assert shown(only) == [
        (12, "x = self.first(x)"),
        (13, ""),
        (14, "x = x.detach()"),
        (15, "return x"),
    ]
    assert [line.number for line in only.lines if line.labels] == [14]
    assert (only.file, only.line, only.function) == (FILE, 14, "Net.forward")


def test_empty_lines_at_the_ends_are_left_out(code):
    (only,) = snippets(finding(11, LINES[0]), code)
    assert [number for number, _ in shown(only)] == [11, 12]
    (only,) = snippets(finding(15, "return x"), code)
    assert [number for number, _ in shown(only)] == [14, 15]


def test_related_lines_are_marked_where_they_are_shown_already(code):
    near = RelatedLocation(file=FILE, line=12, message="made here", source="x = self.first(x)")
    far = RelatedLocation(file=FILE, line=90, message="used here", source="loss(x)")
    other = RelatedLocation(file="/b.py", line=12, message="defined here")
    first, second, third = snippets(finding(related=(far, near, other)), code)
    assert [label.message for label in first.lines[0].labels] == ["made here"]
    assert shown(second) == [(90, "loss(x)")] and second.lines[0].labels[0].message == "used here"
    assert third.lines == () and third.message == "defined here"


def test_the_line_alone_where_the_code_around_it_is_unknown_or_has_changed(code, recording):
    for case in (recording, replace(code, evidence=(replace(code.evidence[0], first=10),))):
        (only,) = snippets(finding(), case)
        assert shown(only) == [(14, "x = x.detach()")]
    assert snippets(finding(source=""), recording)[0].lines == ()


def test_without_a_place_only_related_lines_are_shown(recording):
    position = RelatedLocation(file=FILE, line=3, message="here", source="a = 1")
    found = replace(finding(related=(position,)), location=None)
    assert [snippet.line for snippet in snippets(found, recording)] == [3]


@pytest.mark.parametrize(
    ("name", "known"),
    [("<module>", ""), ("main.<locals>.step", "step"), ("Net.forward", "Net.forward")],
)
def test_functions_are_named_as_people_know_them(name, known, recording):
    assert snippets(finding(function=name), recording)[0].function == known
