from dataclasses import replace

from gradscope.recording.records import CapturedStep
from gradscope.report.documents.run_phrasing import captured_steps_text
from gradscope.report.html import report_page as captured_tabs
from gradscope.report.html.report_page import render_html, run_tabs
from tests.report.conftest import build
from tests.report.html.charts.loops import finding, loop, report_of


def captured_at(*steps, losses=("loss",), length=20):
    """A run with captured steps, one of each loss."""
    captured_steps = tuple(
        CapturedStep(
            step=step,
            order=1,
            recording=replace(build(), target=replace(build().target, loss=loss)),
        )
        for step in steps
        for loss in losses
    )
    return replace(loop([1.0] * length), captured_steps=captured_steps)


def titles(report):
    return [tab.title for tab in run_tabs(report, report.training_run)]


def test_each_captured_step_has_a_tab_behind_that_of_the_run():
    report = report_of(captured_at(0, 3))
    assert titles(report) == ["train.py", "step 0", "step 3"]
    first, captured, _ = run_tabs(report, report.training_run)
    (table,) = first.texts.summaries
    assert [(row[0].text, row[0].tab) for row in table.rows] == [("0", 1), ("3", 2)]
    assert "tensors" in {chart.name for chart in captured.charts}
    assert "further" not in table.caption


def test_of_many_captured_steps_those_with_findings_are_shown_then_the_last_and_first():
    report = report_of(captured_at(*range(12)), finding(step=5), finding(step=3))
    assert titles(report) == ["train.py", *(f"step {step}" for step in (3, 5, 0, 9, 10, 11))]
    (table,) = run_tabs(report, report.training_run)[0].texts.summaries
    assert "--step N for 6 more captured steps" in table.caption


def test_each_loss_of_a_step_is_told_apart():
    report = report_of(captured_at(*range(9), losses=("loss_d", "loss_g")))
    found = titles(report)[1:]
    assert {"step 0 · loss_d", "step 0 · loss_g", "step 8 · loss_d", "step 8 · loss_g"} <= {*found}


def test_only_what_is_found_in_a_step_stands_on_its_tab():
    report = report_of(captured_at(0, 3), finding(step=3))
    whole, near, other = run_tabs(report, report.training_run)
    assert [len(tab.texts.cards) for tab in (whole, near, other)] == [1, 1, 0]


def test_the_file_stays_small(monkeypatch):
    report = report_of(captured_at(0, 3))
    monkeypatch.setattr(captured_tabs, "SIZE_BUDGET", 0)
    (only,) = run_tabs(report, report.training_run)
    assert only.texts.summaries == ()


def test_a_page_of_one_run_holds_its_captured_steps_and_one_of_several_does_not():
    report = report_of(captured_at(0))
    assert render_html([report]).count('role="tab"') == 2
    assert render_html([report, report]).count('role="tab"') == 2
    assert 'id="panel-1"' not in render_html([report_of(loop([1.0]))])


def test_the_captured_steps_closest_to_a_finding_come_first():
    report = report_of(captured_at(0, 4, 9, 14), finding(step=11))
    assert titles(report) == ["train.py", "step 9", "step 0", "step 4", "step 14"]
    (table,) = run_tabs(report, report.training_run)[0].texts.summaries
    assert [row[1].text for row in table.rows] == ["near a finding", "", "", ""]


def test_a_step_that_the_end_of_the_script_left_unmeasured_has_no_tab():
    run = captured_at(0, 3)
    *others, last = run.captured_steps
    empty = replace(last, recording=replace(last.recording, tensor_stats=()))
    report = report_of(replace(run, captured_steps=(*others, empty)))
    assert titles(report) == ["train.py", "step 0"]
    (table,) = run_tabs(report, report.training_run)[0].texts.summaries
    assert "more captured" not in table.caption
    told = captured_steps_text(report.training_run, "run.gradscope")
    assert told.endswith("gradscope report run.gradscope --step 0")


def test_a_captured_step_far_from_a_finding_is_not_near_it():
    report = report_of(captured_at(0, 3, length=200), finding(step=150))
    (table,) = run_tabs(report, report.training_run)[0].texts.summaries
    assert {row[1].text for row in table.rows} == {""}
    report = report_of(captured_at(0, 100, length=200), finding(step=150))
    (table,) = run_tabs(report, report.training_run)[0].texts.summaries
    assert [row[1].text for row in table.rows] == ["near a finding", ""]
