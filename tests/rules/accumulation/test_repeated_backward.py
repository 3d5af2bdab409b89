"""GS308, judged from loops as users write them."""

from tests.rules.accumulation.runs import Run


def loop(*, again=1, steps=6, zero_between=False, separate=False):
    """A loss on its own, and then the total."""
    run = Run()
    trunk, head = run.model("trunk", 4), run.model("head", 2)
    sgd = run.optimizer((*trunk, *head))
    for _ in range(steps):
        run.zero(sgd, line=10)
        run.backward(trunk, line=11, retain=1)
        if zero_between:
            run.zero(sgd, line=12)
        run.backward(head if separate else (*trunk, *head), line=13, again=again)
        run.step(sgd, line=14)
    return run


def test_a_loss_alone_and_within_the_total_is_an_error_with_both_lines():
    (found,) = loop().findings("GS308")
    assert (found.severity, found.location.line, found.count) == ("error", 13, 6)
    assert [position.line for position in found.related] == [11]


def test_two_losses_over_a_shared_trunk_are_fine():
    assert not loop(again=0).findings("GS308")


def test_gradients_that_were_only_looked_at_and_zeroed_are_fine():
    assert not loop(zero_between=True).findings("GS308")


def test_passes_into_parameters_of_their_own_are_fine():
    """As with `inputs=`, where two players take the two sides of one loss."""
    assert not loop(separate=True).findings("GS308")


def test_once_in_a_while_is_not_reported():
    run = Run()
    weights = run.model("model", 4)
    sgd = run.optimizer(weights)
    for step in range(10):
        run.zero(sgd, line=10)
        run.backward(weights, line=11)
        if step % 3 == 0:
            run.backward(weights, line=12, again=1)
        run.step(sgd, line=14)
    assert not run.findings("GS308")
