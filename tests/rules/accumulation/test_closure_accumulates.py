"""GS319, judged from the evaluations of closures."""

import pytest
import torch

from gradscope.rules.engine import judge
from tests.nightly import some_on_push
from tests.rules.accumulation.runs import Run
from tests.rules.watching import findings_of


def loop(evaluations=4, *, zeroes="never", micro_batches=1, steps=5, counts=True):
    """Steps that evaluate a closure so many times; it zeroes in itself, once before, or never."""
    run = Run()
    weights = run.model("model", 2)
    optimizer = run.optimizer(weights, "LBFGS")
    total = 0
    for _ in range(steps):
        if zeroes == "outside":
            run.zero(optimizer, line=10)
        for _ in range(evaluations):
            total += 1
            if zeroes == "inside":
                run.zero(optimizer, line=14)
            for _ in range(micro_batches):
                run.backward(weights, line=15)
        run.step(optimizer, line=20, **({"evaluations": total} if counts else {}))
    return run


def said(run):
    return [one for one in judge(run.recording()).findings if one.rule == "GS319"]


@pytest.mark.parametrize("zeroes", ["never", "outside"])
def test_closure_without_zero_is_an_error_at_its_backward(zeroes):
    (found,) = said(loop(zeroes=zeroes))
    assert (found.severity, found.location.line, found.count) == ("error", 15, 5)
    assert dict(found.evidence)["evaluations"] == 4


def test_it_explains_gradients_that_pile_up():
    (cause,) = (one for one in judge(loop().recording()).findings if not one.caused_by)
    assert cause.rule == "GS319"


@pytest.mark.parametrize(
    "chosen",
    [
        {"zeroes": "inside"},
        {"zeroes": "inside", "micro_batches": 3},
        {"evaluations": 1, "zeroes": "outside"},
        {"zeroes": "outside", "counts": False},
    ],
    ids=["zero in the closure", "micro-batches in the closure", "one evaluation", "not counted"],
)
def test_closures_that_zero_are_right(chosen):
    assert not said(loop(**chosen))


@pytest.mark.parametrize("line_search", some_on_push([None, "strong_wolfe"], {0}))
@pytest.mark.parametrize("zeroes", [True, False])
def test_lbfgs_of_torch(zeroes, line_search, tmp_path):
    def train():
        torch.manual_seed(0)
        points, target = torch.randn(40, 5), torch.randint(0, 3, (40,))
        model = torch.nn.Linear(5, 3)
        optimizer = torch.optim.LBFGS(
            model.parameters(), lr=0.5, max_iter=4, line_search_fn=line_search
        )

        def closure():
            if zeroes:
                optimizer.zero_grad()
            loss = torch.nn.functional.cross_entropy(model(points), target)
            loss.backward()
            return loss

        for _ in range(4):
            optimizer.zero_grad()
            optimizer.step(closure)

    found = {one.rule for one in findings_of(train, tmp_path)}
    assert ("GS319" in found) == (not zeroes)
    assert not zeroes or not found


def test_each_optimizer_of_a_series_counts_its_own_evaluations():
    run = Run()
    weights = run.model("model", 2)
    for _ in range(4):  # a new LBFGS for each example, made on one line
        optimizer = run.optimizer(weights, "LBFGS")
        for total in (4, 8):
            for _ in range(4):
                run.backward(weights, line=15)
            run.step(optimizer, line=20, evaluations=total)
    assert sum(found.count for found in said(run)) == 8
