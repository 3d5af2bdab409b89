"""GS216: paths that are cut by mistake, and gradients that are stopped on purpose."""

import pytest
import torch
from torch import nn
from torch.nn import functional

from tests.nightly import some_on_push
from tests.rules.watching import findings_of as watched

X = torch.randn(16, 8, generator=torch.Generator().manual_seed(1))
Y = torch.randn(16, 1, generator=torch.Generator().manual_seed(2))


def told(findings):
    return [finding.severity for finding in findings if finding.rule == "GS216"]


class Loop(nn.Module):
    """Reads its input number by number; what a time step hands on is up to `hand_on`."""

    def __init__(self, hand_on, kind=nn.GRUCell, *, reads_all=False):
        super().__init__()
        self.cell, self.read = kind(1, 6), nn.Linear(6, 1)
        self.hand_on, self.reads_all = hand_on, reads_all

    def forward(self, x):
        state, outputs = x.new_zeros(len(x), 6), []
        for position in range(x.shape[1]):
            state = self.cell(x[:, position, None], self.hand_on(state, position))
            outputs.append(self.read(state))
        return torch.stack(outputs).mean(0) if self.reads_all else outputs[-1]


class OwnCell(nn.Module):
    def __init__(self, inputs, width):
        super().__init__()
        self.linear = nn.Linear(inputs + width, width)

    def forward(self, x, state):
        return torch.tanh(self.linear(torch.cat([x, state], 1)))


def always(state, position):
    return state.detach()


def by_data(state, position):
    return state.data


def every_fourth(state, position):
    return state.detach() if position % 4 == 0 else state


def never(state, position):
    return state


def at_the_middle(state, position):
    return state.detach() if position == 4 else state


@pytest.mark.parametrize(
    "model",
    some_on_push(
        [
            Loop(always),
            Loop(by_data, nn.RNNCell),
            Loop(always, reads_all=True),
            Loop(always, OwnCell),
        ],
        {0, 1, 3},
    ),
    ids=["detach", "data", "all outputs", "a cell by hand"],
)
def test_a_state_detached_in_every_time_step_is_an_error(findings_of, model):
    assert told(findings_of(model, (X, Y), functional.mse_loss)) == ["error"]


@pytest.mark.parametrize("hand_on", [every_fourth, never, at_the_middle])
@pytest.mark.parametrize("reads_all", some_on_push([False, True], {0}))
@pytest.mark.parametrize("kind", some_on_push([nn.GRUCell, OwnCell], {0}))
def test_a_truncation_is_fine(findings_of, hand_on, reads_all, kind):
    model = Loop(hand_on, kind, reads_all=reads_all)
    assert not told(findings_of(model, (X, Y), functional.mse_loss))


def test_two_states_are_near_but_fine(findings_of):
    assert not told(findings_of(Loop(always), (X[:, :3], Y), functional.mse_loss))
    assert told(findings_of(Loop(always), (X[:, :4], Y), functional.mse_loss))


class TimeStep(nn.Module):
    """One time step of a model whose states the script itself hands on."""

    def __init__(self):
        super().__init__()
        self.cell, self.read = nn.GRUCell(1, 6), nn.Linear(6, 1)

    def forward(self, x, state):
        state = self.cell(x, state)
        return self.read(state), state


class Memories(nn.Module):
    """Reads its input number by number with two states, of which some are handed on detached."""

    def __init__(self, hand_on):
        super().__init__()
        self.cell, self.read = nn.LSTMCell(1, 6), nn.Linear(6, 1)
        self.hand_on = hand_on

    def forward(self, x):
        hidden = memory = x.new_zeros(len(x), 6)
        for position in range(x.shape[1]):
            states = self.cell(x[:, position, None], (hidden, memory))
            hidden, memory = self.hand_on(*states, position)
        return self.read(hidden if hidden.requires_grad else states[0])


def detached_memory(hidden, memory, position):
    return hidden, memory.detach()


def detached_output(hidden, memory, position):
    return hidden.detach(), memory


def memory_at_times(hidden, memory, position):
    return hidden, memory.detach() if position % 2 == 0 else memory


@pytest.mark.parametrize(
    ("hand_on", "expected"),
    [
        (detached_memory, ["warning"]),
        (detached_output, []),  # as LSTMs were first trained
        (memory_at_times, []),
        (lambda hidden, memory, position: (hidden, memory), []),
    ],
)
def test_a_memory_that_is_detached_beside_its_hidden_state(findings_of, hand_on, expected):
    assert told(findings_of(Memories(hand_on), (X, Y), functional.mse_loss)) == expected


def read_step_by_step(hand_on, positions, *, backward_each_step=False):
    torch.manual_seed(3)
    model = TimeStep()
    adam = torch.optim.Adam(model.parameters(), lr=1e-2)
    for _ in range(6):
        state, loss = torch.zeros(16, 6), torch.zeros(())
        adam.zero_grad()
        for position in range(positions):
            output, state = model(X[:, position, None], hand_on(state, position))
            loss = loss + functional.mse_loss(output, Y)
            if backward_each_step:
                loss.backward()
                loss = torch.zeros(())
        if not backward_each_step:
            loss.backward()
        adam.step()


@pytest.mark.parametrize(
    ("hand_on", "positions", "expected"),
    some_on_push(
        [
            (always, 8, ["warning"]),
            (always, 4, ["warning"]),
            (always, 3, []),  # two states
            (every_fourth, 8, []),
            (at_the_middle, 8, []),
            (never, 8, []),
        ],
        {1, 2},
    ),
)
def test_states_that_a_script_detaches_in_every_time_step(hand_on, positions, expected, tmp_path):
    found = watched(lambda: read_step_by_step(hand_on, positions), tmp_path)
    assert told(found) == expected
    assert all("the state of model.cell in every" in one.message for one in found)


@pytest.mark.nightly
def test_a_backward_in_every_time_step_is_a_truncation(tmp_path):
    def loop():
        read_step_by_step(always, 8, backward_each_step=True)

    assert not told(watched(loop, tmp_path))


class Refined(nn.Module):
    """Refines an estimate step by step; a hidden state carries the gradient."""

    def __init__(self):
        super().__init__()
        self.cell, self.head = nn.GRUCell(9, 6), nn.Linear(6, 1)

    def forward(self, x):
        state, estimate = x.new_zeros(len(x), 6), x.new_zeros(len(x), 1)
        for _ in range(6):
            state = self.cell(torch.cat([x, estimate.detach()], 1), state)
            estimate = estimate.detach() + self.head(state)
        return estimate


class Sampler(nn.Module):
    """A variational autoencoder; how the scale takes part is up to `cut`."""

    def __init__(self, cut, *, heads=1):
        super().__init__()
        self.encoder = nn.Linear(8, 6 if heads == 1 else 3)
        self.other = nn.Linear(8, 3) if heads == 2 else None
        self.decoder, self.cut = nn.Linear(3, 8), cut

    def forward(self, x):
        if self.other is None:
            mean, log_variance = self.encoder(x).chunk(2, dim=1)
        else:
            mean, log_variance = self.encoder(x), self.other(x)
        code = mean + self.cut(log_variance).mul(0.5).exp() * torch.randn_like(mean)
        return self.decoder(code), mean, log_variance


def evidence_bound(output, target):
    reconstruction, mean, log_variance = output
    kl = 0.5 * (mean.pow(2) + log_variance.exp() - 1 - log_variance).sum(1).mean()
    return functional.mse_loss(reconstruction, X) + 0.1 * kl


@pytest.mark.parametrize("heads", [1, 2])
@pytest.mark.parametrize("cut", [torch.Tensor.detach, lambda one: one.data], ids=["detach", "data"])
def test_a_scale_that_is_cut_is_a_note(findings_of, cut, heads):
    findings = findings_of(Sampler(cut, heads=heads), (X, Y), evidence_bound)
    assert told(findings) == ["note"]


def squared(output, target):
    return functional.mse_loss(output, target)


class Block(nn.Module):
    def __init__(self, combine):
        super().__init__()
        self.first, self.second = nn.Linear(8, 6), nn.Linear(6, 1)
        self.combine = combine

    def forward(self, x):
        return self.second(self.combine(self.first(x)))


def straight_through(x):
    return x + (x.round() - x).detach()


def scaled_gradient(x):
    return 0.1 * x + 0.9 * x.detach()


def noise(x):
    return x + 0.1 * x.std().detach() * torch.randn_like(x)


def stable_softmax(x):
    y = (x - x.amax(1, keepdim=True).detach()).exp()
    return y / y.sum(1, keepdim=True).detach()


@pytest.mark.parametrize(
    "combine", some_on_push([straight_through, scaled_gradient, noise, stable_softmax], {0, 2})
)
def test_gradients_stopped_on_purpose_are_fine(findings_of, combine):
    assert not told(findings_of(Block(combine), (X, Y), squared))


@pytest.mark.nightly
def test_a_whole_sampler_and_a_refinement_are_fine(findings_of):
    assert not told(findings_of(Sampler(lambda one: one), (X, Y), evidence_bound))
    assert "error" not in told(findings_of(Refined(), (X, Y), squared))


class OwnRNN(TimeStep):
    """A time step whose own class is named like a recurrent layer."""


def test_a_state_is_named_once_by_its_innermost_module(tmp_path):
    torch.manual_seed(3)
    model = OwnRNN()
    adam = torch.optim.Adam(model.parameters(), lr=1e-2)

    def loop():
        for _ in range(4):
            state, loss = torch.zeros(16, 6), torch.zeros(())
            adam.zero_grad()
            for position in range(6):
                output, state = model(X[:, position, None], state.detach())
                loss = loss + functional.mse_loss(output, Y)
            loss.backward()
            adam.step()

    found = [one for one in watched(loop, tmp_path) if one.rule == "GS216"]
    assert ["the state of model.cell in every" in one.message for one in found] == [True]


class Skip(nn.Module):
    """Joins the features of its first layer with what a later one makes of them."""

    def __init__(self, hand_on):
        super().__init__()
        self.first, self.second, self.last = nn.Linear(8, 6), nn.Linear(6, 6), nn.Linear(12, 1)
        self.hand_on = hand_on

    def forward(self, x):
        features = torch.relu(self.first(x))
        deep = torch.relu(self.second(features))
        return self.last(torch.cat([deep, self.hand_on(features, 0)], 1))


@pytest.mark.parametrize(("hand_on", "levels"), [(by_data, ["warning"]), (always, []), (never, [])])
def test_skip_connection_through_data_is_a_warning(findings_of, hand_on, levels):
    assert told(findings_of(Skip(hand_on), (X, Y), functional.mse_loss)) == levels
