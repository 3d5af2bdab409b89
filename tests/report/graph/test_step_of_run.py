"""The graph of a step of a training run, from its captured steps."""

import pytest

from gradscope.recording.store import save_recording
from tests.rules.accumulation.runs import Run
from tests.rules.captured_steps.captured_run import CapturedRun


def steps(run, count, captured_steps=1):
    weights = run.model("model", 2)
    optimizer = run.optimizer(weights)
    for step in range(count):
        for _ in range(captured_steps):
            run.capture_step(dict.fromkeys(weights, "gradient"), line=5, graph=2 + step)
        run.step(optimizer, line=6)
        run.zero(optimizer, line=7)
    return run.recording()


@pytest.fixture
def graph_of(gradscope_in, tmp_path):
    def graph(recording, *arguments, code=0):
        save_recording(recording, tmp_path / "run.gradscope", force=True)
        done = gradscope_in(tmp_path, "graph", "run.gradscope", *arguments, NO_COLOR="1")
        assert done.returncode == code, done.stderr
        return done

    return graph


def test_the_step_that_is_asked_for_is_drawn(graph_of):
    done = graph_of(steps(CapturedRun(), 3), "--step", "1", "--output-format", "dot")
    assert done.stdout.count('label="Mean"') == 3


def test_a_run_without_a_step_says_which_there_are(graph_of):
    done = graph_of(steps(CapturedRun(), 3), code=2)
    assert "choose a step with --step" in done.stderr
    assert "captured: steps 0-2" in done.stderr


def test_a_run_that_was_not_looked_at_says_so(graph_of):
    run = Run()
    weights = run.model("model", 2)
    optimizer = run.optimizer(weights)
    run.backward(weights, line=5)
    run.step(optimizer, line=6)
    assert "without a captured step" in graph_of(run.recording(), code=2).stderr


def test_a_step_that_was_not_captured_is_an_error(graph_of):
    run = CapturedRun()
    steps(run, 2)
    run.step(0, line=6)
    done = graph_of(run.recording(), "--step", "2", code=2)
    assert "step 2 was not captured in detail; captured: steps 0-1" in done.stderr
    assert "gradscope run --tensors-at 2" in done.stderr


def test_a_step_beyond_the_last_one_is_an_error(graph_of):
    done = graph_of(steps(CapturedRun(), 2), "--step", "7", code=2)
    assert "the run has no step 7: its last step is 1" in done.stderr
    assert "captured in detail: steps 0-1" in done.stderr


def test_of_several_backward_passes_the_first_is_drawn(graph_of):
    done = graph_of(
        steps(CapturedRun(), 1, captured_steps=2), "--step", "0", "--output-format", "dot"
    )
    assert "step 0 has 2 backward passes: the first is drawn" in done.stderr
    assert done.stdout.count('label="Mean"') == 2
