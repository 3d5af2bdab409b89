from tests.rules.accumulation.runs import frozen
from tests.rules.clipping.clipped_run import BACKWARD, CLIP, healthy_loop, trained


def early_loop(steps=10, set_to_none=True):
    run, weights, optimizer = trained()
    for _ in range(steps):
        run.zero(optimizer, set_to_none=set_to_none)
        run.clip(weights)
        run.backward(weights)
        run.step(optimizer)
    return run


def test_clip_of_nothing_before_backward_is_an_error_at_its_line():
    found = early_loop().found("GS402")
    assert (found.severity, found.location.line, found.count) == ("error", CLIP, 10)
    assert "it clips nothing" in found.message
    assert [position.line for position in found.related] == [BACKWARD]


def test_clip_of_gradients_that_were_filled_with_zeros_is_one():
    assert early_loop(set_to_none=False).found("GS402").count == 10


def test_clip_between_backward_and_step_is_right():
    assert not healthy_loop().findings("GS402")


def test_clip_of_what_the_step_before_left_is_named_so():
    """At the head of the loop, before the gradients are zeroed."""
    run, weights, optimizer = trained()
    for _ in range(20):
        run.clip(weights)
        run.zero(optimizer)
        run.backward(weights)
        run.step(optimizer)
    found = run.found("GS402")
    assert "the gradients of the previous step" in found.message


def test_clip_of_zeroed_gradients_at_the_end_of_the_loop_clips_nothing():
    run, weights, optimizer = trained()
    for _ in range(10):
        run.backward(weights)
        run.step(optimizer)
        run.zero(optimizer)
        run.clip(weights)
    assert run.found("GS402").count == 9  # nothing follows the last


def test_frozen_part_has_nothing_to_clip():
    """Each part is clipped by itself, and one of them is frozen."""
    run, head, _ = trained()
    backbone = run.model("backbone", 4)
    optimizer = run.optimizer((*backbone, *head))
    for _ in range(10):
        run.zero(optimizer)
        run.backward(head)
        run.clip(backbone)
        run.clip(head, line=CLIP + 1)
        run.step(optimizer)
    assert not run.findings("GS402")
    assert frozen(run.recording(), *backbone)


def test_part_without_gradients_before_backward_is_not_counted():
    run, head, _ = trained()
    backbone = run.model("backbone", 4)
    optimizer = run.optimizer((*backbone, *head))
    for _ in range(10):
        run.zero(optimizer)
        run.clip(backbone)
        run.backward(head)
        run.step(optimizer)
    assert not run.findings("GS402")


def test_warm_up_without_gradients_is_right():
    """A part that gets its first gradient after some steps, clipped all along."""
    run, head, _ = trained()
    backbone = run.model("backbone", 4)
    optimizer = run.optimizer((*backbone, *head))
    for step in range(20):
        run.zero(optimizer)
        run.backward(head if step < 5 else (*backbone, *head))
        run.clip(backbone)
        run.clip(head, line=CLIP + 1)
        run.step(optimizer)
    assert not run.findings("GS402")


def test_last_flush_behind_the_loop_is_right():
    """The rest of an epoch is clipped and stepped; at times there is none."""
    run, weights, optimizer = trained()
    for _ in range(5):
        run.backward(weights)
        run.clip(weights)
        run.step(optimizer)
        run.zero(optimizer)
    run.clip(weights, line=CLIP + 10)
    assert not run.findings("GS402")


def test_two_networks_that_are_clipped_in_turn_are_right():
    run, generator, _ = trained()
    critic = run.model("critic", 3)
    optimizers = (run.optimizer(generator, "Adam"), run.optimizer(critic, "Adam"))
    for _ in range(8):
        for network, optimizer, line in (
            (critic, optimizers[1], 30),
            (generator, optimizers[0], 40),
        ):
            run.zero(optimizer)
            run.backward(network, line=line)
            run.clip(network, line=line + 1)
            run.step(optimizer, line=line + 2)
    assert not run.findings("GS402")
