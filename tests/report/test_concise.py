import re

from gradscope.recording.finding import Finding
from gradscope.report.concise import render_concise
from gradscope.report.model import Report
from gradscope.report.view import ViewOptions


def test_each_line_begins_with_its_place(report):
    lines = render_concise(report, ViewOptions(top=1)).split("\n")
    assert lines == [
        "model.py:12: zero gradient: last.bias float32[2, 2], norm 0, gradient/weight 0",
        "model.py:12: largest gradient: last.weight float32[2, 2], norm 12, gradient/weight 1.2",
        "model.py:12: smallest gradient: first.weight float32[2, 2], norm 3, gradient/weight 0.3",
        "/opt/elsewhere/act.py:3: largest gradient: ReluBackward0 in act float32[8, 2], norm 8",
        "model.py:12: smallest gradient: AddmmBackward0 in last float32[8, 2], norm 2",
        "No findings: 5 parameters, 4 tensors, loss 1.5, global gradient norm 13.",
    ]


def test_findings_take_the_place_of_what_is_worth_looking_at(recording):
    found = Finding(
        rule="GS203",
        name="unused-parameter",
        severity="warning",
        message="head.weight is never used",
        location=recording.sites[2],
        remedy="use it",
        fingerprint="f",
    )
    text = render_concise(Report.from_recording(recording, (found,)), ViewOptions())
    first, last = text.split("\n")
    assert first == "model.py:20: GS203 warning: head.weight is never used"
    assert last.startswith("Found 1 finding: ")


def test_all_tensors_or_none(report):
    text = render_concise(report, ViewOptions(tensors="all"))
    assert len(re.findall(": tensor: ", text)) == 4
    assert "Backward0" not in render_concise(report, ViewOptions(tensors="none"))


def test_hostile_names_stay_on_their_line_and_off_the_terminal(hostile_report):
    text = render_concise(hostile_report, ViewOptions(top=20))
    assert all(sign.isprintable() or sign == "\n" for sign in text)
    assert r"m\x1b[31mred.weight" in text
    lines = text.split("\n")
    assert all(
        line.startswith(("/tmp/<b>", "model.py", "/opt", r"\x1b[1mbold.py"))
        or line.startswith("No findings")
        for line in lines
    )
