"""Tests which call cuts a parameter's gradient off, and on which line."""

import inspect
import linecache

import pytest
import torch
from torch import Tensor, nn


class TwoBranches(nn.Module):
    """Only what `rest` makes of the second branch differs."""

    def __init__(self):
        super().__init__()
        self.live, self.cut = nn.Linear(4, 4), nn.Linear(4, 4)


@pytest.fixture
def explained(watch):
    """Runs a forward whose cut is marked; returns what is said of `cut.weight`, and the record."""

    def run(rest):
        torch.manual_seed(0)
        model = TwoBranches()
        x = torch.randn(3, 4)
        seen = watch(model, lambda: rest(model.live(x), model.cut(x)).sum())
        stat = seen.parameter("cut.weight")
        assert stat.reach == "none"
        assert seen.parameter("live.weight").reach == "gradient"
        return stat.reason, seen.recording

    return run


def numpy_round_trip(live: Tensor, hidden: Tensor) -> Tensor:
    return live * torch.from_numpy(hidden.detach().numpy())  # cut


def no_grad(live: Tensor, hidden: Tensor) -> Tensor:
    with torch.no_grad():
        scale = hidden.exp()  # cut
    return live * scale


def item(live: Tensor, hidden: Tensor) -> Tensor:
    return live * hidden.sum().item()  # cut


def argmax(live: Tensor, hidden: Tensor) -> Tensor:
    chosen = hidden.argmax(dim=1)  # cut
    return live * chosen[:, None]


def comparison(live: Tensor, hidden: Tensor) -> Tensor:
    mask = hidden > 0  # cut
    return live * mask


def data(live: Tensor, hidden: Tensor) -> Tensor:
    return live + hidden.data  # cut


def integer(live: Tensor, hidden: Tensor) -> Tensor:
    return live + hidden.long()  # cut


def detached_for_a_look_and_compared(live: Tensor, hidden: Tensor) -> Tensor:
    hidden.detach().mean()
    mask = hidden > 0  # cut
    return live * mask


def slice_of_a_tensor_written_before(live: Tensor, hidden: Tensor) -> Tensor:
    written = hidden.mul(1).relu_()
    return live * written[:, :1].detach()  # cut


def part_of_a_tensor_written_before(live: Tensor, hidden: Tensor) -> Tensor:
    first, _ = hidden.mul(1).relu_().split(2, dim=1)
    return live + first.data.sum()  # cut


def write_into_data(live: Tensor, hidden: Tensor) -> Tensor:
    scaled = live.mul(1)
    scaled.data.mul_(hidden)  # cut
    return scaled


def write_into_a_detached_tensor(live: Tensor, hidden: Tensor) -> Tensor:
    values = live.mul(1)
    seen = values.detach()
    seen[:, 0] += hidden[:, 0]  # cut
    return values


def write_into_data_of_zeros(live: Tensor, hidden: Tensor) -> Tensor:
    sums = torch.zeros(3, 4)
    sums.data.index_add_(0, torch.tensor([0, 1, 1]), hidden)  # cut
    return live + sums


CUTS = {
    "detach": numpy_round_trip,
    "detach()": slice_of_a_tensor_written_before,
    ".data ": part_of_a_tensor_written_before,
    "write into": write_into_data,
    "a detached tensor": write_into_a_detached_tensor,
    "into a detached": write_into_data_of_zeros,
    "exp": no_grad,
    "item": item,
    "argmax": argmax,
    "gt": comparison,
    ".data": data,
    "long": integer,
    "gt ": detached_for_a_look_and_compared,
}


@pytest.mark.parametrize(("name", "rest"), CUTS.items(), ids=[f.__name__ for f in CUTS.values()])
def test_call_and_line_of_the_cut(explained, name, rest):
    reason, recording = explained(rest)
    lines, first = inspect.getsourcelines(rest)
    (number,) = [first + position for position, line in enumerate(lines) if "# cut" in line]
    assert name.strip() in reason
    assert f"line {number} of test_cuts.py" in reason
    named = {name for cut in recording.cuts for name in cut.parameters}
    assert named == {2, 3}
    sites = [recording.sites[cut.site] for cut in recording.cuts if cut.site is not None]
    assert number in {site.line for site in sites}
    assert all(linecache.getline(site.file, site.line).strip() == site.source for site in sites)


@pytest.mark.parametrize(
    "shaped",
    [
        torch.zeros_like,
        torch.ones_like,
        torch.randn_like,
        lambda hidden: hidden.new_zeros(4),
        lambda hidden: hidden.new_full((4,), 2.0),
    ],
    ids=["zeros_like", "ones_like", "randn_like", "new_zeros", "new_full"],
)
def test_taking_the_shape_of_a_tensor_cuts_nothing_off(explained, shaped):
    reason, recording = explained(lambda live, hidden: live + shaped(hidden))
    assert recording.cuts == ()
    assert reason == "its module was called, but no path leads from the loss to it"


def test_detaching_what_is_used_otherwise_too_explains_nothing(watch):
    model = TwoBranches()
    seen = watch(model, lambda: (model.live(torch.ones(1, 4)) - _stopped(model)).sum())
    assert seen.parameter("live.weight").reach == "gradient"
    assert [cut for cut in seen.recording.cuts if cut.parameters] == []


def _stopped(model: TwoBranches) -> Tensor:
    return model.live(torch.ones(1, 4)).detach()


def test_a_detached_tensor_that_is_written_to_and_used_is_no_cut(watch):
    model = TwoBranches()

    def forward() -> Tensor:
        hidden = model.live(torch.ones(1, 4)).mul(1)
        scaled = hidden.detach().mul_(model.cut(torch.ones(1, 4)))
        return (hidden + scaled).sum()

    seen = watch(model, forward)
    assert {stat.reach for stat in seen.recording.parameter_stats} == {"gradient"}
    assert [cut for cut in seen.recording.cuts if cut.parameters] == []


def test_a_write_without_positional_arguments_is_observed(watch):
    model = TwoBranches()

    def forward() -> Tensor:
        hidden = model.live(torch.ones(1, 4))
        hidden.detach().mean()
        return (torch.relu_(input=hidden * 1) + model.cut(torch.ones(1, 4))).sum()

    seen = watch(model, forward)
    assert "none" not in {stat.reach for stat in seen.recording.parameter_stats}


def test_straight_through_estimator_is_no_cut(watch):
    model = TwoBranches()

    def forward() -> Tensor:
        hidden = model.cut(torch.ones(1, 4))
        rounded = hidden + (hidden.round() - hidden).detach()
        return (model.live(torch.ones(1, 4)) * rounded).sum()

    seen = watch(model, forward)
    assert {stat.reach for stat in seen.recording.parameter_stats} == {"gradient"}
    assert seen.recording.cuts == ()


def test_module_called_without_grad_is_cut_at_its_call(watch):
    class Inner(nn.Module):
        def __init__(self):
            super().__init__()
            self.layers = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 4))

        def forward(self, x):
            return self.layers(x) + 1

    class Outer(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner, self.head = Inner(), nn.Linear(4, 4)

        def forward(self, x):
            with torch.no_grad():
                hidden = self.inner(x)
            return self.head(hidden)

    model = Outer()
    seen = watch(model, lambda: model(torch.ones(1, 4)).sum())
    (cut,) = seen.recording.cuts
    assert (cut.kind, cut.whole_call, cut.parameters) == ("no-grad", True, (0, 1, 2, 3))
    assert seen.recording.sites[cut.site].source == "hidden = self.inner(x)"
    assert seen.recording.modules[seen.recording.calls[cut.call].module].path == ""
    assert cut.joins


@pytest.mark.parametrize("names", [("topk", 1), ("sort",), ("max", 1), ("median", 1)])
def test_indices_are_cut_off_from_what_was_chosen_among(explained, names):
    def chosen(live: Tensor, hidden: Tensor) -> Tensor:
        name, *given = names
        return live * getattr(hidden, name)(*given).indices.sum()

    reason, recording = explained(chosen)
    assert names[0] in reason
    (cut,) = recording.cuts
    assert (cut.kind, bool(cut.joins)) == ("non-differentiable", True)


def test_values_that_come_with_indices_are_not_cut_off(watch):
    model = TwoBranches()
    seen = watch(model, lambda: model.cut(torch.ones(2, 4)).topk(2).values.sum())
    assert seen.parameter("cut.weight").reach == "gradient"
    assert all(0 not in cut.parameters for cut in seen.recording.cuts)


def test_what_is_handed_on_as_it_is_is_not_cut_off(watch):
    """Normal(mean, 0.2) broadcasts its scale, which no gradient comes to, with the mean."""
    model, x = TwoBranches(), torch.randn(3, 4)

    def forward():
        mean, scale = torch.broadcast_tensors(model.cut(x), torch.full((3, 4), 0.2))
        return (model.live(x) + mean.detach() * scale).sum()  # cut

    recording = watch(model, forward).recording
    assert [cut.operation for cut in recording.cuts] == ["detach"]


def test_difference_that_is_added_to_its_own_term_is_straight_through(watch):
    model = TwoBranches()

    def forward() -> Tensor:
        hidden = model.live(torch.ones(1, 4))
        return (hidden + (model.cut.weight[:1] - hidden).detach()).sum()

    seen = watch(model, forward)
    (cut,) = [one for one in seen.recording.cuts if one.operation == "detach"]
    assert cut.straight_through


@pytest.mark.parametrize("rest", [numpy_round_trip, item])
def test_numbers_taken_out_of_torch_are_noted(explained, rest):
    recording = explained(rest)[1]
    assert any(cut.taken_out for cut in recording.cuts)


def test_view_made_without_grad_is_cut_off_from_its_base(explained):
    def viewed(live: Tensor, hidden: Tensor) -> Tensor:
        with torch.no_grad():
            drawn = torch.normal(hidden.expand(3, 4), 1.0)  # cut
        return live + drawn

    reason, recording = explained(viewed)
    assert "normal" in reason
    assert any(cut.joins for cut in recording.cuts)
