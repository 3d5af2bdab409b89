"""The spine of a graph, and what it tells, against brute force and closed forms."""

import dataclasses
import math
import random
import statistics

import pytest
import torch
from torch import nn
from torch.nn import functional

from gradscope.analysis.spine import Dominators, Point, Spines, Trend, jump, running_medians
from gradscope.recording.records import NodeRecord, TensorRef
from gradscope.rules.context import RuleContext
from gradscope.session.inspection import record
from gradscope.target.loading import target_from_objects
from gradscope.target.options import Trial
from tests.nightly import some_on_push


def recording_of(model, batch, loss, *, steps=0):
    target = target_from_objects(model, batch, loss, optimizer=None, grad_output=None)
    return record(target, trial=Trial(probe_steps=steps), eager=False, command="inspect")


def node(index, depth, operation="AddBackward0"):
    return NodeRecord(
        index=index,
        graph=0,
        operation=operation,
        kind="operation",
        depth=depth,
        sequence=None,
        module_call=None,
        site=None,
        outputs=(),
        parameter=None,
    )


def points(*levels, operation="AddBackward0"):
    return [Point(node(i, i, operation), level) for i, level in enumerate(levels)]


@pytest.mark.parametrize("seed", range(20))
def test_dominators_are_the_nodes_whose_removal_cuts_off(seed):
    rng = random.Random(seed)
    count = 25
    users = {
        n: tuple(rng.sample(range(n), min(n, rng.choice([1, 1, 2, 3])))) for n in range(1, count)
    }
    depths = [0] * count
    for n in range(1, count):
        depths[n] = 1 + max(depths[user] for user in users[n])
    tree = Dominators.of([node(n, depths[n]) for n in range(count)], users)

    def reachable(n, without):
        return n != without and (n == 0 or any(reachable(user, without) for user in users[n]))

    for n in range(count):
        expected = {d for d in range(count) if d == n or not reachable(n, d)}
        assert set(tree.chain(n)) == expected


def test_a_chain_of_many_thousand_nodes_needs_no_recursion():
    tree = Dominators.of(
        [node(n, n) for n in range(50_000)], {n: (n - 1,) for n in range(1, 50_000)}
    )
    assert sum(1 for _ in tree.chain(49_999)) == 50_000


def test_running_medians_are_medians():
    rng = random.Random(0)
    values = [rng.gauss(0, 1) for _ in range(50)]
    expected = [statistics.median(values[: n + 1]) for n in range(50)]
    assert running_medians(values) == pytest.approx(expected)


class Scaled(nn.Module):
    """Bias-free layers that multiply by a factor exactly, and a last one by one."""

    def __init__(self, factor, depth=8, width=6):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(width, width, bias=False) for _ in range(depth))
        for layer in self.layers:
            nn.init.orthogonal_(layer.weight, gain=factor)

    def forward(self, x):
        for layer in self.layers:
            x = layer(x)
        return x


@pytest.mark.parametrize("factor", [10.0, 2.0, 0.1])
def test_orthogonal_layers_change_the_gradient_by_their_gain(factor):
    batch = (torch.randn(4, 6), torch.randn(4, 6))
    spines = Spines(RuleContext(recording_of(Scaled(factor), batch, functional.mse_loss)))
    trend = spines.first.growth if factor > 1 else spines.first.loss
    assert trend.decades == pytest.approx(7 * math.log10(factor), rel=1e-5)
    assert trend.steady == pytest.approx(trend.decades, rel=1e-5)
    assert trend.slope == pytest.approx(math.log10(factor), rel=1e-5)
    other = spines.first.loss if factor > 1 else spines.first.growth
    assert other.decades == pytest.approx(0, abs=1e-5)


def test_what_one_operation_does_alone_is_no_trend():
    trend = Trend(tuple(points(0.0, -0.1, -3.1, -3.2)), tuple(points(0.0, -0.1, -3.1, -3.2)))
    assert trend.decades == pytest.approx(-3.2)
    assert trend.steady == pytest.approx(-0.3)


def test_jump_is_the_largest_difference_of_medians():
    levels = [0.1, 0.0, 0.1, 4.3, 4.2, 4.1, 4.2]
    found = jump(points(*levels))
    splits = range(1, len(levels))
    expected = max(statistics.median(levels[n:]) - statistics.median(levels[:n]) for n in splits)
    assert found.decades == pytest.approx(expected)
    assert [point.node.index for point in found.matched] == [2, 3]
    assert jump(points(1.0)) is None
    assert jump(points(1.0, 1.0)).decades == 0


class Residual(nn.Module):
    """A pre-norm block whose branch may be closed."""

    def __init__(self, scale):
        super().__init__()
        self.norm, self.linear = nn.LayerNorm(8), nn.Linear(8, 8)
        self.scale = nn.Parameter(torch.full((8,), scale))

    def forward(self, x):
        return x + self.scale * self.linear(self.norm(x))


@pytest.mark.parametrize("scale", some_on_push([0.0, 1e-6, 1.0], {0, 1}))
def test_branches_are_not_on_the_spine(scale):
    model = nn.Sequential(nn.Linear(8, 8), *(Residual(scale) for _ in range(20)), nn.Linear(8, 3))
    batch = (torch.randn(6, 8), torch.arange(6) % 3)
    context = RuleContext(recording_of(model, batch, functional.cross_entropy))
    spines = Spines(context)
    kinds = {context.recording.nodes[n].operation for n in spines.chains(context.first)[0]}
    assert "NativeLayerNormBackward0" not in kinds
    assert "AddBackward0" in kinds
    assert abs(spines.first.loss.steady) < 1
    assert spines.first.growth.steady < 1


def test_the_loss_is_cut_off_even_beside_a_penalty_on_the_weights():
    model = Scaled(1.0, depth=4)

    def loss(output, target):
        penalty = sum(layer.weight.pow(2).sum() for layer in model.layers)
        return functional.mse_loss(output * 1e-8, target) * 1e-6 + penalty

    context = RuleContext(recording_of(model, (torch.randn(4, 6), torch.randn(4, 6)), loss))
    first = context.recording.nodes[Spines(context).chains(context.first)[0][0]]
    assert first.operation == "MmBackward0"


@pytest.mark.parametrize("value", [0.0, math.nan, math.inf])
def test_a_spine_ends_where_a_norm_is_zero_or_not_finite(value):
    recording = recording_of(
        Scaled(10.0), (torch.randn(4, 6), torch.randn(4, 6)), functional.mse_loss
    )
    chain = Spines(RuleContext(recording)).chains(RuleContext(recording).first)[0]
    matrices = [n for n in chain if recording.nodes[n].operation == "MmBackward0"]
    broken = TensorRef(node=matrices[5], slot=0)
    stats = tuple(
        dataclasses.replace(stat, gradient=dataclasses.replace(stat.gradient, norm=value))
        if (stat.node, stat.slot) == (broken.node, broken.slot)
        else stat
        for stat in recording.tensor_stats
    )
    growth = Spines(RuleContext(dataclasses.replace(recording, tensor_stats=stats))).first.growth
    assert len(growth.matched) == 5
    assert growth.decades == pytest.approx(4, rel=1e-5)


class Adapted(nn.Module):
    """A layer of attention whose input and output are fixed, beside the projections that learn."""

    def __init__(self, learning, *, is_fused):
        super().__init__()
        self.is_fused = is_fused
        self.query, self.key, self.value = (nn.Linear(8, 8, bias=False) for _ in range(3))
        self.out = nn.Linear(8, 8)
        for name in ("query", "key", "value"):
            getattr(self, name).requires_grad_(name in learning)

    def forward(self, x):
        query, key, value = self.query(x), self.key(x), self.value(x)
        if self.is_fused:
            heads = (one.unsqueeze(1) for one in (query, key, value))
            return self.out(functional.scaled_dot_product_attention(*heads).squeeze(1))
        weights = functional.softmax(query @ key.transpose(1, 2) / 8**0.5, dim=-1)
        return self.out(functional.dropout(weights, 0.1) @ value)


@pytest.mark.parametrize(
    ("learning", "is_fused", "goes_on"),
    [
        (("query", "value"), False, False),  # the values are a second path
        (("query", "value"), True, False),
        (("query", "key", "value"), False, False),
        (("query", "key", "value"), True, False),
        (("value",), False, True),
        (("value",), True, True),
        (("query", "key"), False, True),  # without values, all goes through the weights
    ],
)
def test_the_spine_does_not_turn_into_the_queries_of_adapters(learning, is_fused, goes_on):
    torch.manual_seed(0)
    batch = (torch.randn(2, 5, 8), torch.randn(2, 5, 8))
    recording = recording_of(Adapted(learning, is_fused=is_fused), batch, functional.mse_loss)
    spines = Spines(RuleContext(recording))
    ends = [recording.nodes[chain[-1]] for chain in spines.chains(spines._case.first)]
    attention = "ScaledDotProduct" if is_fused else "BmmBackward0"
    average = min(one.depth for one in recording.nodes if one.operation.startswith(attention))
    assert any(end.depth > average for end in ends) is goes_on
