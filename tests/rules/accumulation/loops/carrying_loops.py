"""Loops that take a graph from one step to the next, each with a comment at the line that does."""

from collections import deque
from types import SimpleNamespace

import torch
from torch import nn

STEPS = 24


class Cell(nn.Module):
    """Needs none of its weights to go back through time, so that nothing fails after a step."""

    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(3, 4)

    def forward(self, features, hidden):
        return torch.tanh(self.linear(features) + hidden)


class TwoParts(Cell):
    """Returns a state of two parts beside its output, as an LSTM."""

    def forward(self, features, state):
        hidden, cell = state or (torch.zeros(4), torch.zeros(4))
        hidden = super().forward(features, hidden)
        return hidden * 2, (hidden, cell + hidden)


class Keeps(nn.Module):
    """Keeps its state in an attribute."""

    def __init__(self):
        super().__init__()
        self.cell = Cell()
        self.state = None

    def forward(self, features):
        if self.state is None:
            self.state = features.new_zeros(len(features), 4)
        self.state = self.cell(features, self.state)  # GS309 state
        return self.state


class Buffered(nn.Module):
    """Keeps its state in a buffer."""

    def __init__(self):
        super().__init__()
        self.cell = Cell()
        self.register_buffer("memory", torch.zeros(2, 4))

    def forward(self, features):
        hidden = self.cell(features, self.memory)
        self.memory = hidden  # GS309 memory
        return hidden


class Agent:
    """Is no module; adds its losses up over all of its steps."""

    def __init__(self):
        self.model = nn.Linear(3, 1)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=1e-3)
        self.total = 0.0
        self.history = []

    def observe(self):
        loss = self.model(batch()).pow(2).mean()
        self.total += loss  # GS309 total

    def learn(self):
        self.optimizer.zero_grad()
        self.total.backward(retain_graph=True)
        self.optimizer.step()

    def run(self):
        for _ in range(STEPS):
            self.observe()
            self.learn()


class Remembering(Agent):
    """Puts them into a list of its own."""

    def observe(self):
        loss = self.model(batch()).pow(2).mean()
        self.history.append(loss)  # GS309 history
        self.total = torch.stack(self.history).sum()


def batch():
    return torch.randn(2, 3)


def made(model):
    return model, torch.optim.SGD(model.parameters(), lr=1e-3)


def step(optimizer, loss, *, retain=True):
    optimizer.zero_grad()
    loss.backward(retain_graph=retain)
    optimizer.step()


def a_running_sum():
    model, optimizer = made(nn.Linear(3, 1))
    total = 0
    for _ in range(STEPS):
        loss = model(batch()).pow(2).mean()
        total += loss  # GS309 total
        step(optimizer, total)


def a_sum_over_micro_batches_of_all_epochs():
    model, optimizer = made(nn.Linear(3, 1))
    total = torch.zeros(())
    for _ in range(STEPS):
        for _ in range(2):
            loss = model(batch()).pow(2).mean()
            total = total + loss / 2  # GS309 total
        optimizer.zero_grad()
        total.backward(retain_graph=True)
        optimizer.step()


def a_list_of_losses():
    model, optimizer = made(nn.Linear(3, 1))
    losses = []
    for _ in range(STEPS):
        losses.append(model(batch()).pow(2).mean())  # GS309 losses
        step(optimizer, sum(losses) / len(losses))


def a_dictionary_of_sums():
    model, optimizer = made(nn.Linear(3, 1))
    sums = {"loss": 0.0}
    for _ in range(STEPS):
        sums["loss"] += model(batch()).pow(2).mean()  # GS309 sums
        optimizer.zero_grad()
        sums["loss"].backward(retain_graph=True)
        optimizer.step()


def a_queue_of_features():
    model, optimizer = made(nn.Linear(3, 4))
    queue = deque(maxlen=100)
    for _ in range(STEPS):
        features = model(batch())
        queue.append(features)  # GS309 queue
        step(optimizer, torch.cat(list(queue)).pow(2).mean())


def a_state_of_two_parts():
    model, optimizer = made(TwoParts())
    state = None
    for _ in range(STEPS):
        output, state = model(batch(), state)  # GS309 state
        step(optimizer, output.pow(2).mean())


def a_state_that_is_passed_on_at_the_end():
    model, optimizer = made(Cell())
    hidden = torch.zeros(2, 4)
    for _ in range(STEPS):
        following = model(batch(), hidden)
        step(optimizer, following.pow(2).mean())
        hidden = following  # GS309 hidden


def a_state_that_a_function_returns():
    model, optimizer = made(Cell())

    def train_step(features, hidden):
        hidden_after = model(features, hidden)
        step(optimizer, hidden_after.pow(2).mean())
        return hidden_after

    carried = torch.zeros(2, 4)
    for _ in range(STEPS):
        carried = train_step(batch(), carried)  # GS309 carried


def a_state_in_a_namespace():
    model, optimizer = made(Cell())
    kept = SimpleNamespace(hidden=torch.zeros(2, 4))
    for _ in range(STEPS):
        kept.hidden = model(batch(), kept.hidden)  # GS309 hidden
        step(optimizer, kept.hidden.pow(2).mean())


def a_state_of_a_model():
    model, optimizer = made(Keeps())
    for _ in range(STEPS):
        step(optimizer, model(batch()).pow(2).mean())


def a_buffer_of_a_model():
    model, optimizer = made(Buffered())
    for _ in range(STEPS):
        step(optimizer, model(batch()).pow(2).mean())


def an_average_that_is_kept_for_the_loss():
    model, optimizer = made(nn.Linear(3, 1))
    baseline = torch.zeros(())
    for _ in range(STEPS):
        reward = model(batch()).mean()
        baseline = 0.9 * baseline + 0.1 * reward  # GS309 baseline
        step(optimizer, (reward - baseline).pow(2))


TOTAL = 0.0


def a_global_sum():
    global TOTAL
    model, optimizer = made(nn.Linear(3, 1))
    for _ in range(STEPS):
        TOTAL += model(batch()).pow(2).mean()  # GS309 TOTAL
        step(optimizer, TOTAL)


LOOPS = [
    (a_running_sum, a_running_sum),
    (a_sum_over_micro_batches_of_all_epochs,) * 2,
    (a_list_of_losses,) * 2,
    (a_dictionary_of_sums,) * 2,
    (a_queue_of_features,) * 2,
    (a_state_of_two_parts,) * 2,
    (a_state_that_is_passed_on_at_the_end,) * 2,
    (a_state_that_a_function_returns,) * 2,
    (a_state_in_a_namespace,) * 2,
    (a_state_of_a_model, Keeps),
    (a_buffer_of_a_model, Buffered),
    (an_average_that_is_kept_for_the_loss,) * 2,
    (a_global_sum,) * 2,
    (lambda: Agent().run(), Agent),
    (lambda: Remembering().run(), Remembering),
]
