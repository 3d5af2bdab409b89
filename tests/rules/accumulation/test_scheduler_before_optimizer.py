"""GS311, judged from loops as users write them."""

from gradscope.rules.engine import judge
from tests.rules.accumulation.runs import Run

SCHEDULER, STEP = 20, 12


def schedule(run, optimizer, line=SCHEDULER, before=0.1, after=0.09):
    numbers = {"lr_before": before, "lr_after": after}
    run.event("scheduler", line, optimizer=optimizer, subject="StepLR", **numbers)


def loop(*, first, skipped=0, ahead=0, steps=5):
    """A loop that steps its scheduler before or after its optimizer."""
    run = Run()
    weights = run.model("model", 4)
    sgd = run.optimizer(weights)
    for _ in range(ahead):
        schedule(run, sgd, line=5)
    for step in range(steps):
        if first:
            schedule(run, sgd)
        run.zero(sgd, line=10)
        run.backward(weights, line=11)
        if step < skipped:
            run.event("scaler-step", STEP, optimizer=sgd, skipped=1, found_inf=1)
        else:
            run.step(sgd, line=STEP)
        if not first:
            schedule(run, sgd)
    return run


def test_a_scheduler_in_front_is_a_warning_at_its_step():
    (found,) = loop(first=True).findings("GS311")
    assert (found.severity, found.location.line, found.count) == ("warning", SCHEDULER, 1)
    assert [position.line for position in found.related] == [STEP]
    assert "0.1 is never used" in found.message and "0.09" in found.message


def test_a_scheduler_behind_is_fine():
    assert not loop(first=False).findings("GS311")


def test_a_first_step_that_the_gradient_scaler_skipped_is_nobodys_fault():
    assert not loop(first=False, skipped=1).findings("GS311")


def test_a_schedule_that_is_gone_through_to_go_on_with_training_is_fine():
    assert not loop(first=False, ahead=7).findings("GS311")


def test_the_schedulers_of_two_optimizers_are_judged_by_their_own():
    run = Run()
    generator, critic = run.model("netG", 2), run.model("netD", 2)
    sgd_g, sgd_d = run.optimizer(generator, line=3), run.optimizer(critic, line=4)
    for _ in range(4):
        run.zero(sgd_d, line=10)
        run.backward(critic, line=11)
        run.step(sgd_d, line=12)
        schedule(run, sgd_d, line=21)
        schedule(run, sgd_g, line=22)
        run.zero(sgd_g, line=13)
        run.backward(generator, line=14)
        run.step(sgd_g, line=15)
    (found,) = run.findings("GS311")
    assert found.location.line == 22


def test_a_run_without_a_scheduler_cannot_be_judged():
    run = Run()
    weights = run.model("model", 1)
    run.step(run.optimizer(weights), line=STEP)
    skipped = {one.rule: one.reason for one in judge(run.recording()).skipped}
    assert skipped["GS311"] == "the run has no learning-rate scheduler"
