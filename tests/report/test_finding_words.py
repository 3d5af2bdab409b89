import pytest

from gradscope.recording.finding import Consequence, Finding, SkippedRule, Verdict
from gradscope.report.finding_phrasing import (
    batch_text,
    consequence_text,
    evidence_text,
    found_text,
    parameter_text,
    unjudged,
    verdict_text,
)
from gradscope.session.report import Report


def finding(message="m", **changes):
    values = {
        "rule": "GS201",
        "name": "gradient-cut",
        "severity": "error",
        "location": None,
        "remedy": "r",
        "fingerprint": "f",
    }
    return Finding(message=message, **(values | changes))


@pytest.mark.parametrize(
    ("message", "evidence", "text"),
    [
        ("gain 43.2 is above 10", (("gain", 43.213), ("limit", 10.0)), ""),
        ("gain 43.2 is too high", (("gain", 43.213), ("limit", 10.0)), "limit = 10"),
        ("62 % of the units are dead", (("dead_share", 0.62), ("limit", 0.5)), "limit = 0.5"),
        ("1,234 elements", (("elements", 1234), ("all", 20000)), "all = 20,000"),
        ("norm 1.2e-7 at the start", (("norm", 1.2e-7), ("depth", 3)), "depth = 3"),
        ("grows4.6, 2 times", (("decades", 4.56), ("limit", 1.5)), "limit = 1.5"),
        ("from 1.6e+02 to 0.5, not 1e99999", (("norm", 158.2), ("share", 0.5)), ""),
        ("0 of 3 elements", (("zeros", 0), ("least", 0.3)), "least = 0.3"),
        ("m", tuple((name, True) for name in "abcdef"),
         "a = yes, b = yes, c = yes, d = yes, \u2026"),
        ("loss is NaN", (("loss", float("nan")),), ""),
        ("raised ValueError: no", (("exception", "RuntimeError: no"), ("rows", 2)), "rows = 2"),
        ("the mean is 0", (("operation", "MeanBackward1"), ("share", 1.0)), "share = 1"),
        ("exp overflows", (("operation", "exp"), ("dtype", "float16")), "dtype = float16"),
        ("it shrinks", (("decades_limit", 4.0), ("decades_per_layer", 0.25)),
         "powers of ten limit = 4, powers of ten per layer = 0.25"),
        ("the loss is NaN", (("line_is", "matched"), ("batch", "sample 3 of loader")), ""),
        ("the loss jumps", (("batch", 7),), "batch = 7"),
        ("it is held", (("held_by_optimizer", True), ("frozen", False), ("group", None)),
         "held by optimizer = yes, frozen = no"),
    ],
)  # fmt: skip
def test_evidence_is_what_the_message_does_not_hold(message, evidence, text):
    assert evidence_text(finding(message, evidence=evidence)) == text


def test_parameters_are_named_unless_the_message_does(report):
    names = [row.name for row in report.parameters]
    assert names[:3] == ["first.weight", "first.bias", "last.weight"]

    def text(message, parameters, **options):
        return parameter_text(finding(message, parameters=parameters), report, **options)

    assert text("nothing comes to it", ("last.weight",)) == "last.weight"
    assert text("nothing comes to last.weight", ("last.weight",)) == ""
    assert text("last.weights differ", ("last.weight",)) == "last.weight"
    assert text("nothing comes to it", ("first.weight", "first.bias")) == "first.* (2)"
    assert text("nothing comes to first (2 parameters)", ("first.weight", "first.bias")) == ""
    assert text("none learns", tuple(names)) == "all 5"
    assert text("some", ("first.bias", "last.bias"), shown=1) == "first.bias and 1 more (2)"
    assert text("m", ()) == ""


def test_consequences_are_counted_by_rule():
    consequences = [
        Consequence(rule=rule, name=name, message="m")
        for rule, name in [
            ("GS204", "zero-gradient"),
            ("GS203", "unused"),
            ("GS204", "zero-gradient"),
        ]
    ]
    found = finding(consequences=tuple(consequences))
    assert consequence_text(found) == "GS203 unused, GS204 zero-gradient (2)"
    assert consequence_text(finding()) == ""


def test_verdict_counts_findings_and_rules(recording):
    skipped = (
        SkippedRule(rule="GS105", reason="not selected"),
        SkippedRule(rule="GS108", reason="no optimizer"),
        SkippedRule(rule="GS109", reason="no optimizer"),
        SkippedRule(rule="GS110", reason="ignored"),
    )
    findings = (finding(), finding(), finding(severity="note"))
    report = Report.from_recording(
        recording, Verdict(findings=findings, ran=("GS201",), skipped=skipped)
    )
    assert found_text(report) == "2 errors, 1 note"
    assert verdict_text(report) == (
        "Found 2 errors, 1 note: 1 rule ran, 2 not applicable, 2 skipped."
    )
    assert unjudged(report.rules.skipped) == [("GS108, GS109", "no optimizer")]


def test_codes_that_follow_each_other_are_a_range(recording):
    codes = ("GS105", "GS106", "GS108", "GS201", "GS202", "GS203", "GS209", "GS210", "GS211")
    skipped = tuple(SkippedRule(rule=code, reason="no backward") for code in codes)
    report = Report.from_recording(recording, Verdict(skipped=skipped))
    assert unjudged(report.rules.skipped) == [
        ("GS105, GS106, GS108, GS201-GS203, GS209-GS211", "no backward")
    ]


def test_silence_is_no_verdict(report, recording):
    assert verdict_text(report) == ""
    judged = Report.from_recording(recording, Verdict(ran=("GS201", "GS202")))
    assert verdict_text(judged) == "No findings: 2 rules ran."
    unable = Verdict(skipped=(SkippedRule(rule="GS105", reason="ignored"),))
    assert verdict_text(Report.from_recording(recording, unable)) == "No rule ran: 1 skipped."


def test_a_batch_is_told_with_its_numbers_once():
    samples = (("batch", "samples 8, 3 of loader"), ("batch_numbers", "min -1, max 2"))
    assert batch_text(finding("m", evidence=samples)) == "samples 8, 3 of loader, min -1, max 2"
    unnamed = (("batch", "batch of 4, min -1, max 2"), ("batch_numbers", "min -1, max 2"))
    assert batch_text(finding("m", evidence=unnamed)) == "batch of 4, min -1, max 2"
    assert batch_text(finding("m", evidence=(("batch", 7),))) == ""
