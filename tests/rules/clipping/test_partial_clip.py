import pytest

from tests.rules.clipping.clipped_run import BACKWARD, CLIP, STEP, ClippedRun, healthy_loop, trained


def two_parts():
    run = ClippedRun()
    encoder, decoder = run.model("encoder", 3), run.model("decoder", 4)
    return run, encoder, decoder, run.optimizer((*encoder, *decoder))


def partial_loop(size=1.0, max_norm=0.5, steps=10):
    run, encoder, decoder, optimizer = two_parts()
    for _ in range(steps):
        run.zero(optimizer)
        run.backward((*encoder, *decoder), size=size)
        run.clip(decoder, max_norm)
        run.step(optimizer)
    return run


def test_part_that_is_left_out_is_named_at_the_clip():
    found = partial_loop().found("GS404")
    assert (found.severity, found.location.line, found.count) == ("warning", CLIP, 10)
    assert "clips only decoder" in found.message and "of encoder unclipped" in found.message
    assert found.parameters == ("encoder.weight0", "encoder.weight1", "encoder.weight2")
    assert [position.line for position in found.related] == [STEP]
    assert dict(found.evidence)["largest_norm_outside"] == pytest.approx(3**0.5)


def test_part_that_never_passes_the_limit_is_a_note():
    assert partial_loop(max_norm=3**0.5 + 1e-9).found("GS404").severity == "note"
    assert partial_loop(max_norm=3**0.5 - 1e-9).found("GS404").severity == "warning"


def test_whole_clip_is_right():
    assert not healthy_loop(max_norm=0.1).findings("GS404")


def test_parts_that_are_clipped_each_by_itself_are_right():
    run, encoder, decoder, optimizer = two_parts()
    for _ in range(10):
        run.zero(optimizer)
        run.backward((*encoder, *decoder))
        run.clip(encoder, 0.5)
        run.clip(decoder, 0.1, line=CLIP + 1)
        run.step(optimizer)
    assert not run.findings("GS404")


def test_loop_over_single_parameters_is_right():
    run, weights, optimizer = trained()
    for _ in range(10):
        run.zero(optimizer)
        run.backward(weights)
        for weight in weights:
            run.clip((weight,), 0.1)
        run.step(optimizer)
    assert not run.findings("GS404")


def test_rest_that_belongs_to_another_optimizer_is_right():
    """A GAN: one network's clip comes before its own step, with gradients in the other."""
    run = ClippedRun()
    generator, critic = run.model("generator", 3), run.model("critic", 4)
    first, second = run.optimizer(generator, "Adam"), run.optimizer(critic, "Adam")
    for _ in range(10):
        run.zero(second)
        run.backward(critic)
        run.clip(critic, 0.1)
        run.step(second)
        run.zero(first)
        run.backward((*generator, *critic), line=BACKWARD + 10)
        run.clip(generator, 0.1, line=CLIP + 10)
        run.step(first)
    assert not run.findings("GS404")


def test_part_without_a_gradient_needs_no_clip():
    run, _, decoder, optimizer = two_parts()
    for _ in range(10):
        run.zero(optimizer)
        run.backward(decoder)
        run.clip(decoder, 0.1)
        run.step(optimizer)
    assert not run.findings("GS404")


def test_few_elements_are_worth_a_note():
    run = ClippedRun()
    body, scale = run.model("body", 200), run.model("scale", 1)
    optimizer = run.optimizer((*body, *scale))
    for _ in range(10):
        run.zero(optimizer)
        run.backward((*body, *scale))
        run.clip(body, 0.1)
        run.step(optimizer)
    assert run.found("GS404").severity == "note"


def test_iterator_that_was_used_up_is_an_error():
    """`parameters = model.parameters()`, kept and used for every clip."""
    run, weights, optimizer = trained()
    for step in range(10):
        run.zero(optimizer)
        run.backward(weights)
        run.clip(weights if step == 0 else (), 0.5, exhausted=step > 0)
        run.step(optimizer)
    found = run.found("GS404")
    assert (found.severity, found.location.line, found.count) == ("error", CLIP, 9)
    assert "exhausted iterator" in found.message


def test_empty_list_beside_a_whole_clip_is_right():
    """A clip of the adapters, of which this model has none."""
    run, weights, optimizer = trained()
    for _ in range(10):
        run.zero(optimizer)
        run.backward(weights)
        run.clip((), 0.5, exhausted=1)
        run.clip(weights, 0.5, line=CLIP + 1)
        run.step(optimizer)
    assert not run.findings("GS404")
