"""The walk over the backward graph: nodes, edges, leaves, views, in-place operations."""

from collections import OrderedDict, UserDict
from dataclasses import dataclass

import pytest
import torch
from torch import Tensor, nn

from gradscope.capture.step.graph import tensors, walk
from gradscope.capture.step.modules import InnermostCall, ModuleCall
from gradscope.recording.records import TensorRef
from tests.nightly import some_on_push


def parameters(*shapes: tuple[int, ...]) -> nn.ParameterList:
    torch.manual_seed(0)
    return nn.ParameterList([torch.randn(shape) for shape in shapes])


class Counted(list):
    """A container whose own methods raise."""

    def __iter__(self):
        raise RuntimeError("by the script")

    __len__ = __bool__ = __iter__


class Keyed(dict):
    def values(self):
        raise RuntimeError("by the script")

    __iter__ = __len__ = items = keys = values


class Wrapped(UserDict):
    def __getitem__(self, key):
        raise RuntimeError("by the script")


class Classless:
    @property
    def __class__(self):
        raise RuntimeError("by the script")


@dataclass
class Fields:
    tensor: Tensor
    broken: object = None

    def __getattribute__(self, name):
        raise RuntimeError(f"by the script: {name}")


def nested(value, depth):
    for _ in range(depth):
        value = [value]
    return value


def containing_itself(value):
    found = [value]
    found.append({"again": found, "more": (found, value)})
    return found


@pytest.mark.parametrize(
    ("make", "count"),
    [
        (lambda x: Counted([x, (x,)]), 2),
        (lambda x: Keyed(a=x, b=[x]), 2),
        (lambda x: Wrapped(a=x), 0),
        (lambda x: (Classless(), x), 1),
        (lambda x: [Fields(x), x], 2),
        (lambda x: [Fields, Tensor, x], 1),
        (lambda x: nested(x, 5000), 1),
        (containing_itself, 2),
        (lambda x: {"a": x, "b": UserDict(c=x), "d": OrderedDict(e=[x])}, 3),
    ],
    ids=[
        "list",
        "dict",
        "UserDict",
        "class",
        "fields",
        "types",
        "deep",
        "itself",
        "usual",
    ],
)
def test_tensors_are_found_without_methods_that_a_script_overrides(make, count):
    x = torch.ones(2)
    found = list(tensors(make(x)))
    assert len(found) == count
    assert all(one is x for one in found)


def test_walk_meets_every_node_once():
    x = torch.ones(2, requires_grad=True)
    y = x * 2
    graph = walk((y + y * y).sum())
    assert sorted(graph.operations) == [
        "AccumulateGrad",
        "AddBackward0",
        "MulBackward0",
        "MulBackward0",
        "SumBackward0",
    ]
    edges = [edge for successors in graph.successors for edge in successors]
    assert len(edges) == 6
    assert {graph.operations[node] for node in graph.met_again} == {"MulBackward0"}
    assert [leaf is x for leaf in graph.leaves.values()] == [True]


def test_graph_of_a_leaf_is_the_leaf():
    x = torch.ones((), requires_grad=True)
    graph = walk(x)
    assert graph.operations == ["AccumulateGrad"]
    assert graph.leaves[0] is x


def test_output_slots_of_nodes_with_many_outputs(watch):
    model = parameters((3, 4))

    def forward() -> Tensor:
        left, _, right = model[0].unbind()
        return (left * 2 + right).sum()

    seen = watch(model, forward)
    unbind = seen.node("UnbindBackward0")
    assert [shape.dims for shape in unbind.outputs] == [(4,)] * 3
    assert seen.gradient(unbind, 0).norm == 4  # four twos
    assert seen.gradient(unbind, 1) is None
    assert seen.gradient(unbind, 2).norm == 2


def test_undefined_gradient_of_an_unused_slot_is_not_zero(watch):
    model = parameters((4, 4))

    def forward() -> Tensor:
        values, _ = model[0].max(dim=1)
        first, _ = values.split(2)
        return first.sum()

    seen = watch(model, forward)
    split = seen.node("SplitBackward0")
    assert seen.gradient(split, 0).norm == pytest.approx(2**0.5)
    assert seen.gradient(split, 1) is None


def test_depth_is_the_longest_path(watch):
    model = parameters((2,))

    def forward() -> Tensor:
        x = model[0]
        return (x.exp().exp().exp() + x).sum()

    seen = watch(model, forward)
    (leaf,) = [node for node in seen.recording.nodes if node.kind == "parameter"]
    assert leaf.depth == 5
    assert seen.node("SumBackward0").depth == 0


VIEWS = {
    "view": lambda x: x.view(6, 2),
    "t": lambda x: x.t(),
    "transpose": lambda x: x.transpose(0, 1),
    "unsqueeze": lambda x: x.unsqueeze(0),
    "squeeze": lambda x: x[None].squeeze(0),
    "permute": lambda x: x.unsqueeze(1).permute(2, 1, 0),
    "reshape": lambda x: x.reshape(12).view(4, 3),
    "view_as": lambda x: x.view_as(x),
}


@pytest.mark.parametrize("view", VIEWS.values(), ids=VIEWS)
def test_view_is_measured_once(watch_and_compare, view):
    seen = watch_and_compare(
        lambda: parameters((3, 4)), lambda model: view(model[0].sin()).square().sum()
    )
    views = [node for node in seen.recording.nodes if node.kind == "view"]
    viewed = seen.node("SinBackward0")
    assert views
    measured = {stat.node for stat in seen.recording.tensor_stats}
    for node in views:
        assert node.same_as is not None
        assert node.index not in measured
        assert seen.gradient(node) == seen.gradient(viewed)


@pytest.mark.parametrize("use", ["twice", "beside"])
def test_view_of_a_tensor_used_elsewhere_is_measured_apart(watch_and_compare, use):
    def forward(model) -> Tensor:
        x = model[0].sin()
        other = x.t() if use == "twice" else x
        return x.view(12).exp().sum() + 3 * other.sum()

    seen = watch_and_compare(lambda: parameters((3, 4)), forward)
    for node in seen.recording.nodes:
        if node.kind == "view":
            assert node.same_as is None
    view = seen.node("ViewBackward0")
    exponential = parameters((3, 4))[0].sin().exp().double()
    assert seen.gradient(view).norm == pytest.approx(exponential.norm().item(), rel=1e-6)
    total = (exponential + 3).norm().item()
    assert seen.gradient(seen.node("SinBackward0")).norm == pytest.approx(total, rel=1e-6)


@pytest.mark.parametrize(
    ("operation", "node"),
    [
        (lambda x: x.expand(5, 3, 4), "ExpandBackward0"),
        (lambda x: x[1:], "SliceBackward0"),
        (lambda x: x.select(0, 1), "SelectBackward0"),
        (lambda x: x.repeat(2, 1), "RepeatBackward0"),
        (lambda x: x.diagonal(), "DiagonalBackward0"),
    ],
    ids=["expand", "slice", "select", "repeat", "diagonal"],
)
def test_views_that_change_the_elements_are_measured_apart(watch_and_compare, operation, node):
    seen = watch_and_compare(
        lambda: parameters((3, 4)), lambda model: operation(model[0].sin()).sum()
    )
    assert seen.node(node).same_as is None
    assert seen.gradient(seen.node(node)) is not None


def test_chain_of_views_leads_to_one_measurement(watch_and_compare):
    seen = watch_and_compare(
        lambda: parameters((3, 4)),
        lambda model: model[0].sin().view(12).view(4, 3).t().unsqueeze(0).square().sum(),
    )
    views = [node for node in seen.recording.nodes if node.kind == "view"]
    assert len(views) == 4
    norms = {seen.gradient(node).norm for node in views}
    assert norms == {seen.gradient(seen.node("SinBackward0")).norm}


def test_view_of_a_parameter_refers_to_the_parameter(watch):
    model = nn.Linear(4, 3)
    seen = watch(model, lambda: model(torch.randn(2, 4)).sum())
    view = seen.node("TBackward0")
    weight = next(n.index for n in seen.recording.nodes if n.parameter == 0)
    assert view.same_as == TensorRef(node=weight, slot=0)


def test_in_place_operations_have_nodes_of_their_own(watch_and_compare):
    def forward(model) -> Tensor:
        x = model[0].sin() * 1
        x.relu_()
        y = x * 1
        y.add_(model[1])
        y *= 2
        return y.sum()

    seen = watch_and_compare(lambda: parameters((3, 4), (3, 4)), forward)
    assert seen.gradient(seen.node("ReluBackward0")).norm == pytest.approx((12 * 4) ** 0.5)
    assert seen.gradient(seen.node("AddBackward0")).norm == pytest.approx((12 * 4) ** 0.5)


def test_slices_assigned_into_are_copy_slices(watch_and_compare):
    def forward(model) -> Tensor:
        x = torch.zeros(4, 4)
        x[0] = model[0][1]
        x[:, 1] += model[1][:, 0]
        x.view(16)[3:5].mul_(2)
        x[2:].t().fill_(1.0)
        return (x * x).sum()

    seen = watch_and_compare(lambda: parameters((4, 4), (4, 4)), forward)
    assert len(seen.nodes("CopySlices")) >= 3
    assert all(seen.gradient(node) is not None for node in seen.nodes("CopySlices"))


def test_index_put_and_masked_fill(watch_and_compare):
    def forward(model) -> Tensor:
        x = model[0] * 1
        x[x > 0.5] = 0.0
        x[torch.tensor([0, 1]), torch.tensor([1, 2])] = model[1][0, :2]
        return x.masked_fill(x < -1, 3.0).square().sum()

    watch_and_compare(lambda: parameters((4, 4), (4, 4)), forward)


def test_gradient_of_an_operation_that_gives_zero_is_a_true_zero(watch_and_compare):
    seen = watch_and_compare(
        lambda: parameters((3,)), lambda model: (model[0].sin() * torch.zeros(3)).sum()
    )
    gradient = seen.gradient(seen.node("SinBackward0"))
    assert (gradient.norm, gradient.zero_share) == (0.0, 1.0)
    assert seen.parameter("0").reach == "zero"


def test_order_is_that_of_backward(watch):
    model = nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 4))
    seen = watch(model, lambda: model(torch.randn(2, 4)).sum())
    stats = [stat for stat in seen.recording.tensor_stats if stat.order is not None]
    depths = [seen.recording.nodes[s.node].depth for s in sorted(stats, key=lambda s: s.order)]
    assert depths == sorted(depths)


@pytest.mark.parametrize("steps", some_on_push([1000, 2000], {0}))
def test_deep_unrolled_network(watch_and_compare, steps):
    def forward(model) -> Tensor:
        torch.manual_seed(2)
        x, h = torch.randn(2, 4), torch.zeros(2, 4)
        for _ in range(steps):
            h = model(x + h).tanh()
        return h.square().sum()

    seen = watch_and_compare(lambda: nn.Linear(4, 4), forward)
    assert [call.call for call in seen.calls("")] == list(range(steps))
    tanh = seen.nodes("TanhBackward0")
    assert len(tanh) == steps
    assert all(seen.gradient(node) is not None for node in tanh)


@pytest.mark.parametrize("count", some_on_push([1000, 5000], {0}))
def test_thousands_of_parameters(watch_and_compare, count):
    seen = watch_and_compare(
        lambda: nn.ParameterList([torch.full((3,), float(n)) for n in range(count)]),
        lambda model: torch.stack([p.square().sum() for p in model]).sum(),
    )
    assert len(seen.recording.parameter_stats) == count
    last = count - 1
    assert seen.parameter(str(last)).gradient.norm == pytest.approx(2 * last * 3**0.5)


def calls(*spans: tuple[int, int | None]) -> InnermostCall:
    module = nn.Identity()
    return InnermostCall(
        [
            ModuleCall(module=module, parent=None, line=None, start=start, inputs=[], end=end)
            for start, end in spans
        ]
    )


def test_innermost_call_of_nested_and_empty_spans():
    found = calls((0, 10), (2, 5), (3, 4), (5, 5), (5, 8), (12, None))
    expected = [0, 0, 1, 2, 1, 4, 4, 4, 0, 0, None, None, 5, 5]
    assert [found.find(number) for number in range(14)] == expected
    assert calls().find(3) is None
