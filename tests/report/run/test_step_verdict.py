"""What is said of the findings of a run where one of its steps is shown."""

from gradscope.analysis.training_run import captured_at, verdict_on
from gradscope.recording.finding import UNJUDGED
from gradscope.rules.engine import judge
from tests.rules.captured_steps.captured_run import CapturedRun


def run_of(steps, *, zeroes):
    """A run that zeroes its gradients, or never does."""
    run = CapturedRun()
    weights = run.model("net", 1)
    sgd = run.optimizer(weights, line=2)
    for _ in range(steps):
        if zeroes:
            run.zero(sgd, line=4)
        run.capture_step({weights[0]: "gradient"}, line=5)
        run.step(sgd, line=6)
    return run.recording()


def verdict_of(recording, step):
    (captured,) = captured_at(recording, step)
    return verdict_on(captured, judge(recording))


def test_findings_stand_at_the_step_that_they_begin_with_and_no_other_is_called_right():
    recording = run_of(5, zeroes=False)
    (found,) = judge(recording).findings
    assert verdict_of(recording, found.step).findings == (found,)
    assert verdict_of(recording, found.step + 1) == UNJUDGED


def test_every_step_of_a_run_without_findings_is_called_right():
    recording = run_of(5, zeroes=True)
    assert verdict_of(recording, 2) == judge(recording)
    assert judge(recording).ran
