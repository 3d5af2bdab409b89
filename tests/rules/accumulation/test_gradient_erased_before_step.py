"""GS302, judged from loops as users write them."""

import math

import pytest

from gradscope.rules.engine import judge
from tests.nightly import some_on_push
from tests.rules import watching
from tests.rules.accumulation.runs import Run


def only_erasure(run: Run):
    """The one finding: that a step has no gradient is explained by it."""
    (found,) = judge(run.recording()).findings
    assert found.rule == "GS302"
    return found


def loop(steps: int = 10, *, set_to_none: bool = True, erased_every: int = 1) -> Run:
    """A loop that zeroes behind its backward, in every so many steps."""
    run = Run()
    weights = run.model("model", 4)
    adam = run.optimizer(weights, "Adam")
    for step in range(steps):
        if step % erased_every:
            run.zero(adam, line=10)
        run.backward(weights, line=11)
        if step % erased_every == 0:
            run.zero(adam, line=12, set_to_none=set_to_none)
        run.step(adam, line=13)
    return run


@pytest.mark.parametrize("set_to_none", [True, False])
def test_zeroing_between_backward_and_step_is_an_error_at_the_zero_grad(set_to_none):
    found = only_erasure(loop(set_to_none=set_to_none))
    assert (found.severity, found.location.line) == ("error", 12)
    assert [position.line for position in found.related] == [11, 13]
    assert (found.step, found.count, len(found.parameters)) == (0, 10, 4)


def test_a_single_step_is_enough():
    assert only_erasure(loop(1)).severity == "error"


def test_every_second_step_is_a_warning():
    assert only_erasure(loop(10, erased_every=2)).severity == "warning"


def test_a_batch_given_up_now_and_then_is_fine():
    assert not loop(10, erased_every=3).findings("GS302")


def test_the_zero_grad_of_a_module_counts_too():
    run = Run()
    weights = run.model("model", 4)
    sgd = run.optimizer(weights)
    for _ in range(5):
        run.backward(weights, line=11)
        run.zero(weights, line=12, subject="model")
        run.step(sgd, line=13)
    assert only_erasure(run).location.line == 12


def test_a_gan_with_both_losses_before_both_steps_is_fine():
    """The generator's pass reaches the critic too, whose own zero_grad comes behind it."""
    run = Run()
    generator, critic = run.model("netG", 4), run.model("netD", 4)
    adam_g, adam_d = run.optimizer(generator, line=3), run.optimizer(critic, line=4)
    for _ in range(10):
        run.zero(adam_g, line=10)
        run.backward((*generator, *critic), line=11)
        run.zero(adam_d, line=12)
        run.backward(critic, line=13)
        run.step(adam_g, line=14)
        run.step(adam_d, line=15)
    assert not run.findings("GS302")


def test_an_attack_before_the_training_on_its_result_is_fine():
    run = Run()
    weights = run.model("model", 4)
    sgd = run.optimizer(weights)
    for _ in range(10):
        for _ in range(3):
            run.backward(weights, line=10)
            run.zero(weights, line=11, subject="model")
        run.backward(weights, line=12)
        run.step(sgd, line=13)
        run.zero(sgd, line=14)
    assert not run.findings("GS302")


def test_a_first_step_that_only_looks_ahead_is_fine():
    """As in sharpness-aware minimization, which zeroes what it climbed by."""
    run = Run()
    weights = run.model("model", 4)
    sgd = run.optimizer(weights)
    for _ in range(10):
        run.backward(weights, line=10)
        run.zero(sgd, line=20)
        run.backward(weights, line=11)
        run.step(sgd, line=21)
        run.zero(sgd, line=22)
    assert not run.findings("GS302")


def micro_batches(passes: int, divided: float, *, last: int | None = None) -> Run:
    """A loop that zeroes before each micro-batch, steps after so many, and may zero in a line."""
    run = Run()
    weights = run.model("model", 4)
    sgd = run.optimizer(weights)
    for _ in range(6):
        for _ in range(passes):
            run.zero(sgd, line=10)
            run.backward(weights, line=11, divided=divided)
        run.step(sgd, line=12)
        if last is not None:
            run.zero(sgd, line=last)
    return run


@pytest.mark.parametrize("last", [None, 13])
def test_zeroing_before_each_micro_batch_of_a_divided_loss_is_an_error(last):
    (found,) = micro_batches(4, 4, last=last).findings("GS302")
    assert (found.severity, found.location.line) == ("error", 10)
    assert [position.line for position in found.related] == [11, 12]
    evidence = dict(found.evidence)
    assert (evidence["passes"], evidence["passes_erased"]) == (4, 3)


@pytest.mark.parametrize("divided", [math.nan, math.inf])
def test_a_divisor_that_is_no_number_is_none(divided):
    (found,) = micro_batches(4, divided).findings("GS302")
    assert found.severity == "warning"


def test_the_same_of_an_undivided_loss_is_a_warning():
    (found,) = micro_batches(4, 1).findings("GS302")
    assert found.severity == "warning"


@pytest.mark.parametrize(("loss", "fires"), [(math.nan, False), (math.inf, False), (2.0, True)])
def test_a_batch_whose_loss_is_broken_may_be_left_out(loss, fires):
    run = Run()
    weights = run.model("model", 4)
    sgd = run.optimizer(weights)
    for _ in range(6):
        for one in (loss, loss, 1.0):
            run.zero(sgd, line=10)
            run.backward(weights, line=11, loss=one)
        run.step(sgd, line=12)
    assert bool(run.findings("GS302")) == fires


def test_one_pass_a_step_erases_nothing():
    assert not micro_batches(1, 1).findings("GS302")
    assert not micro_batches(1, 1, last=13).findings("GS302")


def test_an_attack_that_shares_its_backward_with_training_is_no_loop():
    run = Run()
    weights = run.model("model", 4)
    sgd = run.optimizer(weights)
    for _ in range(6):
        run.zero(sgd, line=9)
        run.backward(weights, line=11)
        run.zero(sgd, line=10)
        run.backward(weights, line=11)
        run.step(sgd, line=12)
    assert not run.findings("GS302")


def test_gradients_that_are_put_together_from_erased_ones_are_fine():
    """Projections of several gradients zero after each, and hand the step one of their own."""
    run = Run()
    weights = run.model("model", 4)
    sgd = run.optimizer(weights)
    for _ in range(6):
        for _ in range(3):
            run.zero(sgd, line=10)
            run.backward(weights, line=11)
        run.step(sgd, line=12, backwards=0)
    assert not run.findings("GS302")


def epochs(batches: int, *, zeros: int | None = None, count: int = 4, inside: bool = False) -> Run:
    """Epochs over a loader with a zero_grad for each batch, and one backward behind the loop."""
    run = Run()
    weights = run.model("model", 4)
    sgd = run.optimizer(weights)
    for _ in range(count):
        run.event("epoch", 9, subject="loader", batches=batches)
        for _ in range(batches if zeros is None else zeros):
            run.zero(sgd, line=10)
            if inside:
                run.backward(weights, line=12)
                run.step(sgd, line=13)
        if not inside:
            run.backward(weights, line=12)
            run.step(sgd, line=13)
    return run


def test_a_backward_behind_the_loop_over_the_batches_is_an_error():
    (found,) = epochs(12).findings("GS302")
    assert (found.severity, found.location.line, found.count) == ("error", 12, 4)
    assert [position.line for position in found.related] == [10, 13]
    assert "one batch in 12" in found.message


@pytest.mark.parametrize(
    "run",
    [
        epochs(12, inside=True),
        epochs(12, zeros=11),
        epochs(1),
        epochs(12, count=1),
    ],
    ids=["a step for each batch", "fewer than the batches", "one batch", "a single step"],
)
def test_other_loops_over_batches_are_fine(run):
    assert not run.findings("GS302")


BY_HAND = """
import torch

torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(8):
    BEFORE
    model(torch.randn(16, 4)).square().mean().backward()
    BEHIND
    optimizer.step()
"""

ERASURES = (
    "for p in model.parameters(): p.grad = None",
    "for p in model.parameters(): p.grad = p.grad * 0",
    "for p in model.parameters(): p.grad.zero_()",
    "for p in model.parameters(): p.grad[:] = 0",
    "for p in model.parameters(): p.grad *= 0",
)


def told_by_hand(folder, before, behind):
    script = folder / "train.py"
    script.write_text(BY_HAND.replace("BEFORE", before).replace("BEHIND", behind))
    found = watching.findings_of_script(script, folder)
    return [one for one in found if one.rule == "GS302"]


@pytest.mark.parametrize("erasure", some_on_push(ERASURES, {0, 1, 4}))
def test_gradients_that_a_script_erases_itself_are_an_error_at_its_line(tmp_path, erasure):
    (found,) = told_by_hand(tmp_path, "pass", erasure)
    assert (found.severity, found.location.source) == ("error", erasure)
    assert found.message.startswith("gradients are zeroed by hand between backward()")


def test_gradients_that_a_script_clears_before_the_backward_are_fine(tmp_path):
    assert told_by_hand(tmp_path, ERASURES[0], "pass") == []


def test_gradients_that_are_zeroed_by_hand_are_shown_at_the_step():
    run = Run()
    weights = run.model("model", 4)
    adam = run.optimizer(weights, "Adam")
    for _ in range(6):
        run.step(adam, line=12)
        run.backward(weights, line=13)
        run.zero(weights, line=None)
    (found,) = run.findings("GS302")
    assert (found.location.line, "by hand" in found.message) == (12, True)
    assert [position.line for position in found.related] == [13]
