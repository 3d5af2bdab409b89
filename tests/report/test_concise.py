import json
import math
import re
from dataclasses import replace
from pathlib import Path

import pytest

from gradscope.analysis.view import ViewOptions
from gradscope.recording.evidence.training import SourceRecord
from gradscope.recording.finding import Finding, Verdict
from gradscope.report.render import render
from gradscope.report.snippets import column_of
from gradscope.session.report import Report

GUIDE = Path(__file__).parents[2] / "docs" / "ci.md"
MATCHERS = {
    "of the guide": json.loads(re.search(r'"regexp": (".*")', GUIDE.read_text())[1]),
    # What Visual Studio Code itself has under the name $go.
    "$go": r"^([^:]*: )?((.:)?[^:]*):(\d+)(:(\d+))?: (.*)$",
    # $gcc of its extension for C and C++.
    "$gcc": r"^(.*?):(\d+):(\d*):?\s+(?:fatal\s+)?(warning|error):\s+(.*)$",
    # The line `gnu` of Emacs' compilation mode, and Vim's errorformat `%f:%l:%c: %m`.
    "gnu": r"^([^ \n:][^:\n]*):([0-9]+)[.:]([0-9]+):(.*)$",
}


def render_concise(report, view):
    return render(report, "concise", view, None)


def test_each_line_begins_with_its_place(report):
    lines = render_concise(report, ViewOptions(top=1)).split("\n")
    assert lines == [
        "model.py:12: zero gradient: last.bias float32[2, 2], norm 0, gradient/weight 0",
        "model.py:12: largest gradient: last.weight float32[2, 2], norm 12, gradient/weight 1.2",
        "model.py:12: smallest gradient: first.weight float32[2, 2], norm 3, gradient/weight 0.3",
        "/opt/elsewhere/act.py:3: largest gradient: Relu in act float32[8, 2], norm 8",
        "model.py:12: smallest gradient: Addmm in last float32[8, 2], norm 2",
        "5 parameters (1 zero), 4 tensors, global gradient norm 13.0.",
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
    text = render_concise(
        Report.from_recording(recording, Verdict(findings=(found,))), ViewOptions()
    )
    first, last, following = text.split("\n")
    assert first == "model.py:20:1: warning: GS203 head.weight is never used"
    assert last.startswith("1 warning, 5 parameters (1 zero), ")
    assert following == "next: gradscope rule GS203"


@pytest.mark.parametrize("pattern", MATCHERS.values(), ids=list(MATCHERS))
@pytest.mark.parametrize("is_known", [True, False], ids=["line", "no line"])
def test_problem_matchers_find_file_line_and_column(recording, pattern, is_known):
    site = recording.sites[2]
    source = SourceRecord(file=site.file, first=site.line - 1, lines=("", f"    {site.source}"))
    found = Finding(
        rule="GS203",
        name="unused-parameter",
        severity="warning",
        message="head.weight: never used",
        location=site if is_known else None,
        remedy="use it",
        fingerprint="f",
    )
    known = replace(recording, evidence=(source,))
    report = Report.from_recording(known, Verdict(findings=(found,)))
    line = render_concise(report, ViewOptions()).split("\n")[0]
    match = re.match(pattern, line)
    numbers = [text for text in match.groups() if text and text.isdecimal()]
    assert "model.py" in match.groups()
    assert numbers == (["20", "5"] if is_known else ["1", "1"])
    assert match[len(match.groups())].endswith("head.weight: never used")


@pytest.mark.parametrize("level", ["error", "warning"])
def test_gcc_matcher_finds_the_level(recording, level):
    found = Finding(
        rule="GS203",
        name="unused-parameter",
        severity=level,
        message="head.weight is never used: remove it",
        location=recording.sites[2],
        remedy="use it",
        fingerprint="f",
    )
    report = Report.from_recording(recording, Verdict(findings=(found,)))
    line = render_concise(report, ViewOptions()).split("\n")[0]
    expected = ("model.py", "20", "1", level, "GS203 head.weight is never used: remove it")
    assert re.match(MATCHERS["$gcc"], line).groups() == expected


def test_columns_are_told_of_current_code_alone(recording):
    site = recording.sites[2]
    changed = SourceRecord(file=site.file, first=site.line, lines=("    other = code()",))
    other = replace(recording, evidence=(changed,))
    assert (column_of(site, other), column_of(None, other)) == (1, 1)


def test_all_tensors_or_none(report):
    text = render_concise(report, ViewOptions(tensors="all"))
    assert len(re.findall(": tensor: ", text)) == 4
    assert "Relu" not in render_concise(report, ViewOptions(tensors="none"))


def test_hostile_names_stay_on_their_line_and_off_the_terminal(hostile_report):
    text = render_concise(hostile_report, ViewOptions(top=20))
    assert all(sign.isprintable() or sign == "\n" for sign in text)
    assert r"m\x1b[31mred.weight" in text
    lines = text.split("\n")
    assert all(
        line.startswith(("/tmp/<b>", "model.py", "/opt", r"\x1b[1mbold.py"))
        or line.startswith("14 parameters (5 non-finite, 1 zero), ")
        for line in lines
    )


def test_made_up_loss_is_said_first(recording):
    target = replace(recording.target, synthetic_loss=True)
    report = Report.from_recording(replace(recording, target=target))
    first, *rest = render_concise(report, ViewOptions()).split("\n")
    assert first.startswith("model.py: warning: the loss is guessed")
    assert rest == render_concise(Report.from_recording(recording), ViewOptions()).split("\n")


def test_closing_line_counts_missing_and_non_finite_gradients(recording):
    stats = list(recording.parameter_stats)
    stats[0] = replace(stats[0], gradient=None, reach="none", reason="cut off")
    stats[1] = replace(stats[1], gradient=replace(stats[1].gradient, nonfinite=1, norm=math.inf))
    report = Report.from_recording(replace(recording, parameter_stats=tuple(stats)))
    last = render_concise(report, ViewOptions()).split("\n")[-1]
    counts = "5 parameters (1 without a gradient, 1 non-finite, 1 zero), 4 tensors, "
    assert last.startswith(counts)
