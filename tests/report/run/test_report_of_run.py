"""The report of a run as a user reads it."""

import json
import math
from dataclasses import replace
from importlib.resources import files

import jsonschema
import pytest

from gradscope.recording.records import ParameterStat
from gradscope.recording.store import load_recording, save_recording
from gradscope.report.documents.run_phrasing import captured_steps_text, file_word
from gradscope.session.report import Report
from tests.report.html.charts.loops import report_of
from tests.report.html.test_captured_tabs import captured_at
from tests.report.run.conftest import (
    accumulation,
    adversarial,
    cut_short,
    gradient,
    network,
    plain,
    shown,
)
from tests.rules.accumulation.runs import Run

SCHEMA = json.loads(files("gradscope").joinpath("schemas/report-1.json").read_text())


def per_parameter(count=60):
    """An optimizer for each parameter, as where steps are made inside of backward."""
    run = Run()
    weights = run.model("model", count)
    made = [run.optimizer([weight], name=f"optimizers[{weight}]") for weight in weights]
    for _ in range(3):
        run.backward(weights, line=5)
        for optimizer in made:
            run.step(optimizer, line=6)
            run.zero(optimizer, line=7)
    return run.recording()


def without_steps():
    run = Run()
    run.backward(run.model("model", 2), line=5)
    return run.recording()


def broken():
    """Norms that are NaN, infinite, zero, missing; a loss that becomes NaN."""
    values = (math.nan, math.inf, 0.0, None, 1e300, 5e-324, 1.0)
    recording = network(14, lambda step, block: values[(step + block) % len(values)])
    steps = [replace(step, loss=math.nan if step.index > 6 else 1.0) for step in recording.steps]
    return replace(recording, steps=tuple(steps))


def hostile():
    recording = adversarial(3)
    names = ("[/x]", "\x1b[31mred\n", "`tick`|<b>")
    optimizers = tuple(
        replace(one, name=name) for one, name in zip(recording.evidence, names, strict=True)
    )
    events = tuple(
        replace(event, kind="a`|<b>\x1b[1m\n" if event.kind == "zero" else event.kind)
        for event in recording.events
    )
    modules = tuple(
        replace(one, path=one.path + "[/x]\x1b", class_name="<i>") for one in recording.modules
    )
    return replace(recording, evidence=optimizers, events=events, modules=modules)


RUNS = {
    "accumulation": accumulation(),
    "adversarial": adversarial(),
    "one step": plain(1),
    "without steps": without_steps(),
    "broken": broken(),
    "per parameter": per_parameter(),
    "hostile": hostile(),
    "repeated layers": network(30, lambda step, block: 10.0 ** (block - step / 10), blocks=40),
}
each_run = pytest.mark.parametrize("recording", RUNS.values(), ids=RUNS)


@each_run
@pytest.mark.parametrize("width", [40, 80, 140])
def test_lines_fit_the_page(recording, width):
    text = shown(recording, width=width)
    assert all(len(line) <= width for line in text.splitlines())
    assert all(line == line.rstrip() for line in text.splitlines())


@each_run
def test_text_in_ascii(recording):
    text = shown(recording, encoding="ascii")
    assert text.isascii()
    assert "\\u" not in text


@each_run
@pytest.mark.parametrize("output_format", ["full", "concise", "markdown"])
def test_nothing_in_a_run_controls_the_terminal(recording, output_format):
    assert "\x1b" not in shown(recording, output_format)


@each_run
def test_json_keeps_its_schema(recording):
    value = json.loads(shown(recording, "json"))
    jsonschema.Draft202012Validator(SCHEMA).validate(value)


@each_run
def test_json_lines_hold_the_same(recording):
    whole = json.loads(shown(recording, "json"))
    lines = [json.loads(line) for line in shown(recording, "jsonl").splitlines()]
    timeline = [line for line in lines if line["kind"] == "timeline"]
    (run,) = [line for line in lines if line["kind"] == "training_run"]
    assert [{k: v for k, v in line.items() if k != "kind"} for line in timeline] == (
        whole["timeline"]
    )
    assert run == {"kind": "training_run", **whole["training_run"]}


@each_run
@pytest.mark.parametrize("output_format", ["github", "gitlab", "junit", "sarif"])
def test_formats_of_ci_take_a_run(recording, output_format):
    assert shown(recording, output_format) is not None


@each_run
def test_report_tells_itself_in_a_notebook(recording):
    report = Report.from_recording(recording)
    assert "step" in repr(report)
    assert "step" in report._repr_html_()


def test_a_report_begins_with_what_was_run():
    lines = shown(adversarial()).splitlines()
    assert lines[0] == "gradscope run train.py"
    assert lines[1].endswith("generator Generator, critic Critic: 24 elements in 6 parameters")
    assert "opt_c Adam(lr=0.1), train.py:4: 20 steps on 3 parameters" in lines[2]
    assert "32 steps in 1.11 s" in lines[5]


def test_a_recording_that_was_cut_short_says_so():
    for output_format in ("full", "concise", "markdown"):
        assert "run incomplete" in shown(cut_short(plain()), output_format)
        assert "run incomplete" not in shown(plain(), output_format)
    assert "run incomplete" in repr(Report.from_recording(cut_short(plain())))
    assert not json.loads(shown(cut_short(plain()), "json"))["training_run"]["is_complete"]


def test_the_losses_of_two_optimizers_are_told_apart():
    run = Run()
    made = [run.optimizer(run.model(name, 2), name=f"of_{name}") for name in ("critic", "actor")]
    for step in range(3):
        for position, optimizer in enumerate(made):
            run.backward((2 * position, 2 * position + 1), line=5, loss=1.0 + step + 10 * position)
            run.step(optimizer, line=6)
    last = shown(run.recording()).splitlines()[-1]
    assert "of_critic loss 1.00 → 3.00, of_actor loss 11.0 → 13.0" in last


def test_numbers_that_are_not_those_of_the_script_are_explained():
    for output_format in ("full", "markdown"):
        text = shown(accumulation(), output_format)
        assert "mean over 4 micro-batches" in text
        assert "as backward()" not in shown(plain(), output_format)


def test_a_run_without_a_step_shows_what_there_was():
    text = shown(without_steps())
    assert "no optimizer step in 0 s" in text
    assert "1 ×  backward" in text  # noqa: RUF001
    assert "Curves" not in text


def test_one_step_has_one_number():
    text = shown(plain(1))
    assert "loss             ▅  1.00\n" in text


def test_many_optimizers_are_folded():
    text = shown(per_parameter())
    assert "56 more with 168 steps together" in text
    assert len(text.splitlines()) < 90


def test_numbers_that_are_not_finite_are_marked():
    text = shown(broken())
    assert "non-finite in 7 steps, first 7" in text
    assert "! NaN or infinite, 0 exactly zero, blank: none measured" in text


def test_rows_show_what_was_measured_last_of_each_parameter():
    recording = adversarial(2)
    report = Report.from_recording(recording)
    last: dict[int, ParameterStat] = {}
    for stat in recording.parameter_stats:
        last[stat.parameter] = stat
    assert {row.index: row.grad for row in report.parameters} == {
        index: stat.gradient for index, stat in last.items()
    }
    assert report.summary.step == recording.steps[-1].index


def test_norms_come_from_parameters_where_the_step_tells_none(run_of):
    recording = plain(2)
    events = [
        replace(event, numbers=tuple(item for item in event.numbers if item[0] != "norm"))
        for event in recording.events
    ]
    stats = [replace(stat, gradient=gradient(3.0)) for stat in recording.parameter_stats]
    run = run_of(replace(recording, events=tuple(events), parameter_stats=tuple(stats)))
    assert [step.grad_norm for step in run.steps] == pytest.approx([math.hypot(3, 3)] * 2)


def test_update_ratio_is_over_the_parameters_of_which_the_update_is_known(run_of):
    recording = network(2, lambda step, block: 1.0)
    stats = [
        replace(stat, update_norm=None) if stat.parameter == 0 else stat
        for stat in recording.parameter_stats
    ]
    run = run_of(replace(recording, parameter_stats=tuple(stats)))
    assert [step.update_ratio for step in run.steps] == pytest.approx([0.001, 0.001])


def test_curves_in_json_are_told_step_by_step():
    curves = json.loads(shown(plain(3), "json"))["training_run"]["curves"]
    assert curves["step"] == [0, 1, 2]
    assert curves["loss"] == [1.0, 0.5, 1 / 3]
    assert curves["learning_rate"] == [0.1] * 3
    assert len(set(map(len, curves.values()))) == 1


def test_events_of_a_run_name_their_optimizer():
    events = json.loads(shown(adversarial(1), "json"))["events"]
    assert events[0]["optimizer"] == 1
    assert events[0]["subject"] == "optimizer"


def test_markdown_shows_steps_as_a_table_and_curves_as_text_that_keeps_its_columns():
    text = shown(accumulation(), "markdown")
    assert "| 11 × | (forward → backward) ×4 → unscale" in text  # noqa: RUF001


def test_concise_tells_pictures_and_ends_with_the_run():
    *pictures, last = shown(accumulation(), "concise").splitlines()
    assert pictures[0].startswith("AdamW(lr=0.1): (forward -> backward) x4 -> unscale")
    assert pictures[1].endswith("(1 step, first 11)")
    assert last.startswith("12 steps in 1.17 s, loss 8.00 -> ")


@pytest.mark.parametrize(
    ("file", "told"),
    [
        ("", "steps 0-1"),
        ("train.gradscope", "steps 0-1: gradscope report train.gradscope --step 1"),
        ("/work/my runs/a.gradscope", "steps 0-1: gradscope report 'my runs/a.gradscope' --step 1"),
        ("/tmp/a.gradscope", "steps 0-1: gradscope report /tmp/a.gradscope --step 1"),
    ],
)
def test_the_command_for_captured_steps_names_the_file(file, told):
    recording = captured_at(0, 1)
    found = replace(recording, file=file, target=replace(recording.target, root="/work"))
    report = report_of(found)
    assert captured_steps_text(report.training_run, file_word(found)) == told


def test_a_recording_knows_its_file_which_is_no_part_of_it(tmp_path):
    path = tmp_path / "run.gradscope"
    save_recording(accumulation(), path)
    found = load_recording(path)
    assert found.file == str(path)
    assert replace(found, file="") == found
