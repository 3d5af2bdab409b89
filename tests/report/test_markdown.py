import html
import re
from dataclasses import replace

import pytest

from gradscope.analysis.view import ViewOptions
from gradscope.recording.finding import Finding, SkippedRule, Verdict
from gradscope.report.formats.markdown import prose
from gradscope.report.render import render
from gradscope.session.report import Report

CELL_BORDER = re.compile(r"(?<!\\)\|")


def markdown(report, **view):
    return render(report, "markdown", ViewOptions(**view), None)


def cells(text):
    """The rows of all tables, each a list of cells."""
    return [
        [cell.strip() for cell in CELL_BORDER.split(line)[1:-1]]
        for line in text.splitlines()
        if line.startswith("|")
    ]


def test_summary_and_tables_hold_the_numbers(report):
    text = markdown(report, top=1)
    assert text.startswith("## gradscope: `model.py`\n")
    assert "- **loss**: 1.50 from" in text and "global gradient norm 13.0" in text
    names = "`last.weight` = `again.weight` = `head.weight`"
    line = "`model.py:12`"
    row = ["largest", names, "`float32[2, 2]`", "12.0", "1.20", "0.00100", line]
    assert row in cells(text)
    assert [
        "largest",
        "8.00",
        "Relu in `act` `float32[8, 2]`",
        "`/opt/elsewhere/act.py:3`",
    ] in cells(text)


def test_tensors_can_be_left_out_or_all_be_shown(report):
    assert "Tensors" not in markdown(report, tensors="none")
    text = markdown(report, tensors="all")
    rows = cells(text.split("### Tensors")[1])
    made = [row[1].partition(" `float32")[0] for row in rows]
    assert made[2:] == ["Addmm in `first`", "Relu in `act`", "Addmm in `last`", "MseLoss"]


@pytest.mark.parametrize("tensors", ["none", "top", "all"])
def test_hostile_names_break_no_table_and_run_nothing(hostile_report, tensors):
    text = markdown(hostile_report, tensors=tensors, top=20)
    assert all(sign.isprintable() or sign == "\n" for sign in text)
    assert not re.search(r"<(?!/?code>)", text)
    header = None
    for line in text.splitlines():
        count = len(CELL_BORDER.findall(line)) if line.startswith("|") else None
        assert header is None or count is None or count == header, line
        header = count


def test_names_are_whole_whatever_they_hold(hostile_report):
    shown = html.unescape(markdown(hostile_report, top=20))
    for name in ("m[/x].weight", "m<script>alert(1)</script>.weight", "m`tick`|pipe|.weight"):
        assert name in shown
    assert "deep." * 40 in shown
    assert r"m\x1b[31mred.weight" in shown


def test_what_was_not_measured_is_listed_up_to_ten(hostile_report):
    text = markdown(hostile_report)
    assert "### Not measured" in text
    listed = text.split("### Not measured")[1]
    assert listed.count("\n- ") == 11
    assert listed.endswith("- … 2 more: --output-format json")


def test_findings_come_with_line_and_remedy(recording):
    found = Finding(
        rule="GS203",
        name="unused-parameter",
        severity="warning",
        message="`a|b` is *never* used @all",
        location=recording.sites[0],
        remedy="use it",
        fingerprint="f",
    )
    text = markdown(Report.from_recording(recording, Verdict(findings=(found,))))
    (title,) = [line for line in text.splitlines() if "GS203" in line]
    assert title.startswith("**warning GS203 unused-parameter** at `model.py:12`: ")
    assert html.unescape(title).endswith("<code>a|b</code> is *never* used @all")
    assert "@" not in title and title.count("*") == 4
    assert "> 12 x = self.first(x)" in text
    assert "- **help**: use it" in text


def test_code_with_fences_stays_in_its_own(recording):
    site = replace(recording.sites[0], source="text = '````'")
    found = Finding(
        rule="GS203",
        name="unused-parameter",
        severity="warning",
        message="it is never used",
        location=site,
        remedy="use it",
        fingerprint="f",
    )
    report = Report.from_recording(recording, Verdict(findings=(found,)))
    lines = markdown(report).splitlines()
    assert lines.count("`````python") == lines.count("`````") == 1


def test_line_whose_code_is_not_known_has_no_empty_block(recording):
    site = replace(recording.sites[0], file="<stdin>", source="")
    found = Finding(
        rule="GS201", name="gradient-cut", severity="error", message="cut", location=site,
        remedy="mend it", fingerprint="f",
    )  # fmt: skip
    text = markdown(Report.from_recording(recording, Verdict(findings=(found,))))
    assert "mend it" in text
    assert "```" not in text


def test_rules_that_could_not_judge_are_listed_by_reason(recording):
    skipped = tuple(
        SkippedRule(rule=rule, reason=reason)
        for rule, reason in [
            ("GS108", "no optimizer"),
            ("GS105", "ignored"),
            ("GS109", "no optimizer"),
        ]
    )
    report = Report.from_recording(recording, Verdict(ran=("GS201",), skipped=skipped))
    text = markdown(report)
    assert "No findings: 1 rule ran, 2 not applicable, 1 skipped." in text
    assert text.endswith("### Not applicable\n\n- `GS108, GS109`: no optimizer")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("use `x + 1` here", "use `x + 1` here"),
        ("a_b and `c_d`", "a&#95;b and `c_d`"),
        ("`a|b`", "<code>a&#124;b</code>"),
        ("one ` alone *", "one &#96; alone &#42;"),
        ("`<b>` <b>", "<code>&#60;b&#62;</code> &#60;b&#62;"),
        ("``", ""),
    ],
)
def test_prose_keeps_code_and_nothing_else_active(text, expected):
    assert prose(text) == expected
