"""GS309, from counts of nodes as capture makes them: of the first passes, then of some."""

import pytest
import torch
from torch import nn

from gradscope.rules.engine import judge
from tests.rules.accumulation.runs import Run
from tests.rules.watching import findings_of


def loop(passes, nodes, *, older=True):
    """A step for each pass, whose graph has `nodes(pass)` nodes."""
    run = Run()
    weights = run.model("model", 4)
    sgd = run.optimizer(weights)
    for position in range(passes):
        run.zero(sgd, line=10)
        counted = position < 5 or position % 20 == 0
        reaches_back = {"older": int(older and position > 0)}
        numbers = {"nodes": nodes(position), **reaches_back} if counted else {}
        run.backward(weights, line=11, **numbers)
        run.step(sgd, line=12)
    return run


@pytest.mark.parametrize(("passes", "severity"), [(3, None), (4, "warning"), (41, "error")])
def test_a_graph_that_grows_is_worse_the_longer_it_does(passes, severity):
    found = loop(passes, lambda position: 10 + 6 * position).findings("GS309")
    assert [one.severity for one in found] == ([severity] if severity else [])
    assert {one.location.line for one in found} <= {11}


def test_the_numbers_are_those_of_the_first_and_the_last_count():
    (found,) = loop(41, lambda position: 10 + 6 * position).findings("GS309")
    evidence = dict(found.evidence)
    assert (evidence["nodes_first"], evidence["nodes_last"], evidence["passes"]) == (16, 250, 39)


def test_counting_ends_at_twenty_thousand():
    assert loop(81, lambda position: min(20_000, 10_000 + 400 * position)).findings("GS309")


@pytest.mark.parametrize(
    "nodes",
    [
        lambda position: 40,
        lambda position: 10 + 6 * min(position, 3),  # a horizon of four steps
        lambda position: 10 + 6 * min(position, 30),
        lambda position: 10 + 6 * (position % 7),
    ],
    ids=["constant", "short horizon", "long horizon", "by chance"],
)
def test_graphs_of_a_bounded_size_are_fine(nodes):
    assert not loop(81, nodes).findings("GS309")


def epochs(subject, *, sum_is_carried=1, reaches_back=True):
    """Epochs of eight steps; a total that begins with each of them is backpropagated."""
    run = Run()
    weights = run.model("model", 4)
    sgd = run.optimizer(weights)
    for position in range(32):
        run.zero(sgd, line=10)
        batch = position % 8
        if position == 1:
            run.event("carried", 9, subject=subject, sum=sum_is_carried, repeated=1)
        counted = position < 6 or position % 4 == 0
        older = {"older": int(reaches_back and batch > 0)}
        numbers = {"nodes": 6 + 4 * batch, **older} if counted else {}
        run.backward(weights, line=11, subject="total", **numbers)
        run.step(sgd, line=12)
    return run.findings("GS309")


def test_the_total_of_an_epoch_grows_until_it_starts_anew():
    (found,) = epochs("total")
    assert (found.severity, found.location.line) == ("error", 9)
    evidence = dict(found.evidence)
    # Of the first epoch, the second to the sixth batch were counted.
    assert (evidence["nodes_first"], evidence["nodes_last"]) == (10, 26)


def test_states_that_start_anew_with_each_sequence_are_fine():
    assert not epochs("state")
    assert not epochs("total", sum_is_carried=0)
    assert not epochs("total", reaches_back=False)


def test_sequences_that_happen_to_grow_are_fine():
    assert not loop(41, lambda position: 10 + position, older=False).findings("GS309")


def test_without_counts_nothing_can_be_said():
    run = Run()
    weights = run.model("model", 4)
    sgd = run.optimizer(weights)
    run.backward(weights, line=11)
    run.step(sgd, line=12)
    skipped = {one.rule: one.reason for one in judge(run.recording()).skipped}
    assert skipped["GS309"] == "no graph of the run was counted"


@pytest.mark.parametrize(
    ("numbers", "is_found"),
    [({"freed": 1, "older": 1}, True), ({"freed": 1, "older": 0}, False), ({"in_place": 1}, False)],
    ids=["into an earlier step", "twice in one step", "something else"],
)
def test_a_backward_that_fails_for_it_is_an_error(numbers, is_found):
    run = Run()
    weights = run.model("model", 4)
    sgd = run.optimizer(weights)
    run.backward(weights, line=11, nodes=12)
    run.step(sgd, line=12)
    run.event("backward-error", 11, nodes=24, **numbers)
    found = run.findings("GS309")
    assert [(one.severity, one.location.line) for one in found] == [("error", 11)] * is_found


def test_a_line_that_fails_again_and_again_is_one_finding():
    run = Run()
    weights = run.model("model", 4)
    sgd = run.optimizer(weights)
    for _ in range(3):
        run.zero(sgd, line=10)
        run.backward(weights, line=11, nodes=12)
        run.step(sgd, line=12)
        run.event("backward-error", 11, nodes=24, freed=1, older=1)
    run.event("backward-error", 15, nodes=24, freed=1, older=1)
    found = run.findings("GS309")
    assert [(one.location.line, one.count) for one in found] == [(11, 3), (15, 1)]
    assert "fails 3 times:" in found[0].message and "fails:" in found[1].message


def test_a_history_that_is_let_go_now_and_then_is_fine():
    run = Run()
    weights = run.model("model", 4)
    sgd = run.optimizer(weights)
    for position in range(5):
        run.zero(sgd, line=10)
        run.backward(weights, line=11, nodes=10 + 6 * (position % 4), older=int(position % 4 > 0))
        run.step(sgd, line=12)
    assert not run.findings("GS309")


class Scaled(nn.Module):
    """A number that is learned through its exponential, and that scales the input."""

    def __init__(self, kind):
        super().__init__()
        self.kind = kind
        self.raw = nn.Parameter(torch.full((3,), 0.1))
        self.bias = nn.Parameter(torch.zeros(3))
        self.scale = self.compute()

    def compute(self):
        if self.kind == "view":
            return self.raw.expand(4, 3)
        return self.raw.exp() if self.kind != "constant" else self.raw.exp().detach()

    def forward(self, x):
        return x * (self.compute() if self.kind == "anew" else self.scale) + self.bias


def scaled(kind, *, refresh=0, lr=0.05, steps=12):
    torch.manual_seed(0)
    model = Scaled(kind)
    sgd = torch.optim.SGD(model.parameters(), lr=lr)
    for step in range(steps):
        if refresh and step % refresh == 0:
            model.scale = model.compute()
        x = torch.randn(4, 3)
        sgd.zero_grad()
        (model(x) - 2 * x).square().mean().backward(retain_graph=True)
        sgd.step()


@pytest.mark.parametrize(
    ("kind", "refresh", "is_found"),
    [
        ("once", 0, True),
        ("once", 3, False),  # outdated for a few steps only
        ("anew", 0, False),
        ("view", 0, False),  # shows the weight as it is
        ("constant", 0, False),
    ],
)
def test_what_is_computed_once_from_weights_is_outdated(kind, refresh, is_found, tmp_path):
    findings = findings_of(lambda: scaled(kind, refresh=refresh), tmp_path)
    found = [one for one in findings if one.rule == "GS309"]
    assert [one.severity for one in found] == ["error"] * is_found
    assert all("scale was computed once" in one.message for one in found)


def test_what_is_computed_once_from_weights_that_stay_is_fine(tmp_path):
    def loop():
        torch.manual_seed(0)
        teacher, student = nn.Linear(3, 3), nn.Linear(3, 3)
        x = torch.randn(4, 3)
        known = teacher(x).exp()
        sgd = torch.optim.SGD(student.parameters(), lr=0.05)
        for _ in range(12):
            sgd.zero_grad()
            (student(x) - known).square().mean().backward(retain_graph=True)
            sgd.step()

    assert not [one for one in findings_of(loop, tmp_path) if one.rule == "GS309"]
