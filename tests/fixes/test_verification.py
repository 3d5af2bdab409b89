"""What the edited program must show; reports are changed copies of a real one."""

from dataclasses import replace
from math import inf, nan
from pathlib import Path

import pytest

from gradscope.fixes.verification import result_of
from gradscope.recording.finding import Consequence, Edit, Position, SkippedRule
from gradscope.rules.catalogue import RULES
from tests.rules.inspecting import report_of_file

SAMPLE = Path(__file__).parents[2] / "sample_models" / "loss_broadcast.py"


@pytest.fixture(scope="module")
def before():
    return report_of_file(SAMPLE, probe_steps=0)


def with_findings(report, *findings, shapes=False):
    """Return the report of an edited program; `shapes` leaves its operations as they are."""
    nodes = tuple(replace(node, outputs=()) for node in report.recording.nodes)
    recording = report.recording if shapes else replace(report.recording, nodes=nodes)
    rules = replace(report.rules, findings=findings)
    return replace(report, findings=findings, rules=rules, recording=recording)


def result(before, after, edits=()):
    found = result_of(before.findings[0], before, after, edits)
    return found.is_verified, found.text


def test_a_fix_is_verified_if_the_finding_is_gone_and_nothing_else_is_worse(before):
    summary = replace(before.summary, grad_norm=0.5)
    after = replace(with_findings(before), summary=summary)
    assert result(before, after) == (
        True, "GS702 gone, gradient norm 0.331 -> 0.5, no new finding",
    )  # fmt: skip


def test_a_finding_that_moved_with_the_edit_is_the_same_one(before):
    (finding,) = before.findings
    moved = replace(
        finding,
        fingerprint="another",
        message="another",
        location=replace(finding.location, line=finding.location.line + 1),
    )
    position = Position(line=2, column=1)
    inserted = Edit(file=finding.location.file, start=position, end=position, replacement="x\n")
    assert result(before, with_findings(before, moved), [inserted]) == (False, "GS702 stays")
    assert "GS702 loss-broadcast appears" in result(before, with_findings(before, moved))[1]


def test_lines_of_the_edited_program_are_told_as_those_of_the_original(before):
    (finding,) = before.findings
    place = replace(finding.location, line=finding.location.line + 2)
    other = replace(
        finding, rule="GS101", name="exploding-gradient", fingerprint="other", location=place,
        message="from the add of line 22 to the mul of line 4",
    )  # fmt: skip
    position = Position(line=9, column=1)
    inserted = Edit(file=finding.location.file, start=position, end=position, replacement="x\nx\n")
    is_verified, text = result(before, with_findings(before, other), [inserted])
    assert not is_verified
    assert f":{finding.location.line}: from the add of line 20 to the mul of line 4" in text


def test_a_broadcast_that_another_operation_makes_is_an_objection(before):
    is_verified, text = result(before, with_findings(before, shapes=True))
    assert not is_verified and text.startswith("another operation of ")
    assert text.endswith("loss_broadcast.py:26 gives [64, 64]")


def test_a_finding_like_one_that_stays_is_new(before):
    (finding,) = before.findings
    place = replace(finding.location, line=finding.location.line + 1)
    other = replace(finding, fingerprint="other", location=place)
    third = replace(other, fingerprint="third", location=replace(place, line=place.line + 1))
    both = with_findings(before, finding, other)
    assert result(both, with_findings(before, other))[0]
    is_verified, text = result(both, with_findings(before, other, third))
    assert not is_verified and text == "GS702 stays"


def test_a_finding_that_became_a_consequence_stays(before):
    (finding,) = before.findings
    consequence = Consequence(rule="GS702", name="loss-broadcast", message="")
    other = replace(finding, rule="GS701", severity="note", consequences=(consequence,))
    assert result(before, with_findings(before, other)) == (False, "GS702 stays")


@pytest.mark.parametrize(("severity", "expected"), [("warning", False), ("note", True)])
def test_a_new_finding_is_an_objection_unless_it_is_a_note(severity, expected, before):
    other = replace(
        before.findings[0], rule="GS203", name="unused-parameter", severity=severity,
        consequences=(), fingerprint="other", message="encoder is never used",
    )  # fmt: skip
    is_verified, text = result(before, with_findings(before, other))
    assert is_verified is expected
    assert "GS203 unused-parameter" in text


def test_a_rule_that_no_longer_runs_is_an_objection(before):
    rules = replace(
        before.rules, findings=(), ran=before.rules.ran[1:],
        skipped=(SkippedRule(rule=before.rules.ran[0], reason="no gradient"),),
    )  # fmt: skip
    after = replace(before, findings=(), rules=rules)
    assert result(before, after) == (False, f"{before.rules.ran[0]} no longer runs: no gradient")


def test_a_rule_that_only_notes_need_not_run_again(before):
    notes = {rule.code for rule in RULES if rule.level == "note"}
    (code, *_) = (one for one in before.rules.ran if one in notes)
    rules = replace(
        before.rules, findings=(), ran=tuple(one for one in before.rules.ran if one != code),
        skipped=(SkippedRule(rule=code, reason="the losses vary"),),
    )  # fmt: skip
    is_verified, text = result(before, replace(with_findings(before), rules=rules))
    assert is_verified and f"{code} not judged: the losses vary" in text


def with_reach(report, **reach):
    """Return a report in which parameters of the first layer have another reach."""
    rows = [replace(row, reach=reach.get(row.name[2:], row.reach)) for row in report.parameters[:2]]
    return replace(report, parameters=(*rows, *report.parameters[2:]))


@pytest.mark.parametrize(
    ("weight", "is_verified"), [("gradient", True), ("zero", False), ("none", False)]
)
def test_a_bias_that_cancels_out_may_have_a_gradient_of_zero(weight, is_verified, before):
    cut = replace(before.findings[0], rule="GS201", parameters=("0.weight", "0.bias"))
    was = with_reach(with_findings(before, cut), weight="none", bias="none")
    after = with_reach(with_findings(before), weight=weight, bias="zero")
    assert result(was, after)[0] is is_verified


def test_parameters_that_a_cut_left_without_gradient_must_stay(before):
    cut = replace(before.findings[0], rule="GS201", parameters=("0.weight", "0.bias"))
    was = with_reach(with_findings(before, cut), weight="none", bias="none")
    after = replace(with_findings(before), parameters=before.parameters[2:])
    assert result(was, after) == (False, "the model has fewer parameters")
    stale = with_findings(was, replace(cut, rule="GS206"))
    assert result(stale, after)[0]


@pytest.mark.parametrize("reach", ["none", "zero", "unknown"])
def test_a_parameter_without_its_gradient_is_an_objection(reach, before):
    first, *others = before.parameters
    rows = (replace(first, reach=reach), *others)
    after = replace(with_findings(before), parameters=rows)
    assert result(before, after) == (False, "0.weight gets no gradient")
    after = replace(with_findings(before), parameters=tuple(others))
    assert result(before, after) == (False, "the model has fewer parameters")


@pytest.mark.parametrize(
    ("loss", "grad_norm", "expected"),
    [
        (nan, 1.0, "the loss is nan"),
        (inf, 1.0, "the loss is inf"),
        (500.0, 1.0, "the loss is 500"),
        (1.0, 0.0, "the gradient norm is 0"),
        (1.0, nan, "the gradient norm is nan"),
        (1.0, None, "the gradient norm is none"),
        (100.0, 1.0, "GS702 gone"),
        (-3.0, 1.0, "GS702 gone"),
    ],
)
def test_loss_and_gradient_must_be_finite_and_comparable(loss, grad_norm, expected, before):
    summary = replace(before.summary, loss=loss, grad_norm=grad_norm)
    was = replace(before, summary=replace(before.summary, loss=1.0))
    found = result(was, replace(with_findings(before), summary=summary))
    assert found[1].startswith(expected)
    assert found[0] is expected.startswith("GS702")
