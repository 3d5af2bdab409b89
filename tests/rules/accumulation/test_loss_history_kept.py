"""GS315, in loops that keep tensors with their history, and in others that look like them."""

from collections import deque

import pytest
import torch
from torch import nn
from torch.nn import functional

from tests.nightly import some_on_push
from tests.rules.run_trainings import keeping
from tests.rules.watching import findings_of, findings_of_script

STEPS = 16


@pytest.fixture(autouse=True)
def _seed():
    torch.manual_seed(0)


def made():
    model = nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 1))
    return model, torch.optim.SGD(model.parameters(), lr=0.05)


def loss_of(model):
    x = torch.randn(12, 6)
    return functional.mse_loss(model(x), x.sum(1, keepdim=True))


def step(optimizer, loss):
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()


def a_sum():
    model, optimizer = made()
    total = 0.0
    for _ in range(STEPS):
        loss = loss_of(model)
        step(optimizer, loss)
        total += loss  # here
    return total


def a_sum_of_each_epoch():
    model, optimizer = made()
    for _ in range(3):
        epoch_loss = torch.zeros(())
        for _ in range(8):
            loss = loss_of(model)
            step(optimizer, loss)
            epoch_loss = epoch_loss + loss  # here


def a_list():
    model, optimizer = made()
    losses = []
    for _ in range(STEPS):
        losses.append(loss_of(model))  # here
        step(optimizer, losses[-1])


def outputs_of_validation():
    model, optimizer = made()
    outputs = {"validation": []}
    for _ in range(8):
        for _ in range(4):
            step(optimizer, loss_of(model))
        outputs["validation"].append(model(torch.randn(4, 6)))  # here


class Meter:
    def __init__(self):
        self.total, self.last = 0.0, None

    def update(self, value):
        self.total = self.total + value  # here
        self.last = value


def a_meter():
    model, optimizer = made()
    meter = Meter()
    for _ in range(STEPS):
        loss = loss_of(model)
        step(optimizer, loss)
        meter.update(loss)


SICK = {
    "sum": a_sum,
    "each epoch": a_sum_of_each_epoch,
    "list": a_list,
    "validation": outputs_of_validation,
    "attribute": a_meter,
}


def told(loop, folder):
    return [one for one in findings_of(loop, folder) if one.rule == "GS315"]


@pytest.mark.parametrize("loop", some_on_push(SICK.values(), 2), ids=SICK)
def test_what_keeps_the_graphs_is_named_with_its_line(loop, tmp_path):
    (found,) = told(loop, tmp_path)
    assert found.location.source.endswith("# here")
    numbers = dict(found.evidence)
    assert numbers["nodes_last"] > numbers["nodes_first"] > 0


def numbers_and_detached():
    model, optimizer = made()
    total, kept, smooth = 0.0, [], torch.zeros(())
    for _ in range(STEPS):
        loss = loss_of(model)
        step(optimizer, loss)
        total += loss.item()
        kept.append(loss.detach())
        smooth = 0.9 * smooth + 0.1 * loss.detach()


def outputs_of_the_last_validation():
    model, optimizer = made()
    best, output = None, None
    for _ in range(8):
        for _ in range(4):
            step(optimizer, loss_of(model))
        output = model(torch.randn(4, 6))
        best = output if best is None or output.sum() > best.sum() else best


def the_two_steps_before():
    model, optimizer = made()
    before = deque(maxlen=2)
    for _ in range(STEPS):
        before.append(loss_of(model))
        step(optimizer, before[-1])


def losses_of_micro_batches():
    model, optimizer = made()
    for _ in range(STEPS):
        parts = [loss_of(model) for _ in range(4)]
        step(optimizer, torch.stack(parts).mean())


def an_actor_that_learns_at_the_end_of_an_episode():
    critic, often = made()
    actor, rarely = made()
    for _ in range(2):
        kept = []
        for _ in range(12):
            step(often, loss_of(critic))
            kept.append(actor(torch.randn(1, 6)).sum())
        step(rarely, torch.stack(kept).mean())


def a_running_state_that_is_detached():
    model = nn.GRUCell(6, 6)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    state, states = torch.zeros(4, 6), []
    for _ in range(STEPS):
        state = model(torch.randn(4, 6), state.detach())
        states.append(state.tolist())
        step(optimizer, state.pow(2).mean())


def validation_without_gradients():
    model, optimizer = made()
    outputs = []
    for _ in range(8):
        for _ in range(4):
            step(optimizer, loss_of(model))
        with torch.no_grad():
            outputs.append(model(torch.randn(4, 6)))


def a_frozen_encoder_whose_codes_are_kept():
    encoder = nn.Linear(6, 6)
    model, optimizer = made()
    codes = []
    for _ in range(STEPS):
        codes.append(encoder(torch.randn(4, 6)))
        step(optimizer, loss_of(model))
    return codes


HEALTHY = (
    numbers_and_detached,
    outputs_of_the_last_validation,
    the_two_steps_before,
    losses_of_micro_batches,
    an_actor_that_learns_at_the_end_of_an_episode,
    a_running_state_that_is_detached,
    validation_without_gradients,
    a_frozen_encoder_whose_codes_are_kept,
)


@pytest.mark.parametrize("loop", some_on_push(HEALTHY, 3), ids=[loop.__name__ for loop in HEALTHY])
def test_what_is_let_go_or_used_later_is_fine(loop, tmp_path):
    assert not told(loop, tmp_path)


@pytest.mark.nightly
def test_a_state_that_backward_goes_through_is_another_mistake(tmp_path):
    def loop():
        embed, read = nn.Linear(6, 4), nn.Linear(4, 1)
        optimizer = torch.optim.SGD([*embed.parameters(), *read.parameters()], lr=0.01)
        memory = torch.zeros(12, 4)
        for _ in range(STEPS):
            memory = torch.tanh(embed(torch.randn(12, 6)) + 0.5 * memory)
            optimizer.zero_grad()
            read(memory).pow(2).mean().backward(retain_graph=True)
            optimizer.step()

    assert {one.rule for one in findings_of(loop, tmp_path)} == {"GS309"}


@pytest.mark.parametrize(
    ("rises", "steps", "level"),
    [(2, 10, None), (3, 10, "warning"), (5, 19, "warning"), (5, 20, "error")],
)
def test_three_rises_are_a_warning_and_twenty_steps_an_error(rises, steps, level):
    found = keeping(rises, steps).findings("GS315")
    assert [one.severity for one in found] == ([level] if level else [])


SCRIPT = """
import torch
from torch import nn
from torch.nn import functional

model = nn.Linear(6, 1)
sgd = torch.optim.SGD(model.parameters(), lr=0.01)

def train():
    sgd.zero_grad()
    loss = functional.mse_loss(model(torch.randn(12, 6)), torch.zeros(12, 1))
    loss.backward()
    sgd.step()
    return loss

total = 0
for _ in range(16):
    loss = train()
    total += KEPT
"""


@pytest.mark.parametrize(("kept", "lines"), [("loss", [19]), ("loss.item()", [])])
def test_a_sum_at_the_top_of_a_script_whose_function_trains(kept, lines, tmp_path):
    script = tmp_path / "train.py"
    script.write_text(SCRIPT.replace("KEPT", kept))
    found = [one for one in findings_of_script(script, tmp_path) if one.rule == "GS315"]
    assert [one.location.line for one in found] == lines
