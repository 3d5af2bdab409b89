from dataclasses import replace

import pytest

from gradscope.recording.finding import Finding, Verdict
from gradscope.session.report import Report


@pytest.fixture
def found(recording):
    def report(count=1, message="first.weight gets no gradient"):
        finding = Finding(
            rule="GS201",
            name="gradient-cut",
            severity="error",
            message=message,
            location=recording.sites[0],
            remedy="r",
            fingerprint="f",
        )
        verdict = Verdict(findings=(finding,) * count, ran=("GS201",))
        return Report.from_recording(recording, verdict)

    return report


def test_findings_are_told_in_a_line_each(found):
    lines = [line.strip() for line in repr(found()).split("\n")]
    assert "error[GS201] gradient-cut: first.weight gets no gradient (model.py:12)" in lines
    assert "Found 1 error: 1 rule ran." in lines


def test_many_findings_are_counted(found):
    lines = [line.strip() for line in repr(found(count=13)).split("\n")]
    assert sum(line.startswith("error[GS201]") for line in lines) == 10
    assert "… 3 more" in lines


def test_html_has_the_findings(found):
    html = found(message="<b>first</b> gets\x1b none")._repr_html_()
    assert "error GS201 gradient-cut" in html and "model.py:12" in html
    assert "&lt;b&gt;first&lt;/b&gt; gets\\x1b none" in html
    assert "Found 1 error: 1 rule ran." in html
    assert "#d62728" in html, "the colour of errors"


def test_nothing_is_said_where_no_rule_was_asked(report, found):
    assert "ound" not in repr(report)
    judged = replace(report, rules=Verdict(ran=("GS201",)))
    assert "No findings: 1 rule ran." in repr(judged)
