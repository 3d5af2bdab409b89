"""Loops that go wrong in ways that a single backward shows, found at their lines in a run."""

import linecache

import pytest
import torch
from torch import nn
from torch.distributions import Normal
from torch.nn import functional

from tests.nightly import some_on_push
from tests.rules.captured_steps.healthy_players import STEPS, mlp
from tests.rules.captured_steps.healthy_single import classify
from tests.rules.watching import findings_of


def an_action_that_is_drawn_without_a_gradient():
    actor, critic = mlp(4, 2), mlp(6, 1)
    of_actor = torch.optim.Adam(actor.parameters(), lr=1e-3)
    of_critic = torch.optim.Adam(critic.parameters(), lr=1e-3)
    for _ in range(STEPS):
        state = torch.randn(32, 4)
        with torch.no_grad():
            done = Normal(actor(state), 0.1).sample()
        reward = -(done - state[:, :2]).pow(2).sum(1, keepdim=True)
        of_critic.zero_grad()
        functional.mse_loss(critic(torch.cat([state, done], 1)), reward).backward()
        of_critic.step()
        of_actor.zero_grad()
        planned = Normal(actor(state), 0.1).sample()  # GS202
        (-critic(torch.cat([state, planned], 1)).mean()).backward()
        of_actor.step()


def one_that_steps_together_with_its_critic():
    actor, critic = mlp(4, 2), mlp(6, 1)
    of_actor = torch.optim.Adam(actor.parameters(), lr=1e-3)
    of_critic = torch.optim.Adam(critic.parameters(), lr=1e-3)
    for _ in range(STEPS):
        state = torch.randn(32, 4)
        with torch.no_grad():
            done = actor(state) + 0.1 * torch.randn(32, 2)
        reward = -(done - state[:, :2]).pow(2).sum(1, keepdim=True)
        planned = Normal(actor(state), 0.1).sample()  # GS202
        of_actor.zero_grad()
        of_critic.zero_grad()
        functional.mse_loss(critic(torch.cat([state, done], 1)), reward).backward()
        (-critic(torch.cat([state, planned], 1)).mean()).backward()
        of_actor.step()
        of_critic.step()


def a_generator_that_is_always_cut_off():
    generator, critic = mlp(4, 2), mlp(2, 1)
    of_generator = torch.optim.Adam(generator.parameters(), lr=1e-3)
    of_critic = torch.optim.Adam(critic.parameters(), lr=1e-3)
    loss_of = nn.BCEWithLogitsLoss()
    for _ in range(STEPS):
        fake = generator(torch.randn(32, 4)).detach()  # GS201
        of_critic.zero_grad()
        loss = loss_of(critic(torch.randn(32, 2)), torch.ones(32, 1))
        (loss + loss_of(critic(fake), torch.zeros(32, 1))).backward()
        of_critic.step()
        of_generator.zero_grad()
        loss_of(critic(fake), torch.ones(32, 1)).backward()
        of_generator.step()


def a_code_that_is_cut_off():
    encoder, decoder = mlp(8, 4), mlp(4, 8)
    optimizer = torch.optim.Adam([*encoder.parameters(), *decoder.parameters()], lr=1e-3)
    for _ in range(STEPS):
        features = torch.randn(32, 8)
        code = encoder(features).detach()  # GS201
        optimizer.zero_grad()
        functional.mse_loss(decoder(code), features).backward()
        optimizer.step()


def a_head_that_came_too_late():
    model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 9))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)  # GS205
    model[2] = nn.Linear(16, 2)
    classify(model, optimizer)


def a_model_that_was_made_again():
    model = mlp(8, 2)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)  # GS205
    model = mlp(8, 2)
    classify(model, optimizer)


def a_rate_that_kills():
    model = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 2))
    optimizer = torch.optim.SGD(model.parameters(), lr=300.0)  # GS108
    classify(model, optimizer, steps=12)


def factors_that_both_start_at_zero():
    class LowRank(nn.Linear):
        def __init__(self, inputs, outputs):
            super().__init__(inputs, outputs)
            self.down = nn.Parameter(torch.zeros(2, inputs))
            self.up = nn.Parameter(torch.zeros(outputs, 2))  # GS204
            self.weight.requires_grad_(False)
            self.bias.requires_grad_(False)

        def forward(self, rows):
            return super().forward(rows) + rows @ self.down.T @ self.up.T

    model = nn.Sequential(LowRank(8, 16), nn.ReLU(), LowRank(16, 2))
    trained = [one for one in model.parameters() if one.requires_grad]
    classify(model, torch.optim.AdamW(trained, lr=1e-3))


def pairs_of_every_row_with_every_other():
    model = mlp(8, 1)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    for _ in range(STEPS):
        features = torch.randn(32, 8)
        optimizer.zero_grad()
        loss = ((model(features) - features.sum(1)) ** 2).mean()  # GS702
        loss.backward()
        optimizer.step()


LOOPS = (
    an_action_that_is_drawn_without_a_gradient,
    one_that_steps_together_with_its_critic,
    a_generator_that_is_always_cut_off,
    a_code_that_is_cut_off,
    a_head_that_came_too_late,
    a_model_that_was_made_again,
    a_rate_that_kills,
    factors_that_both_start_at_zero,
    pairs_of_every_row_with_every_other,
)


@pytest.mark.parametrize("loop", some_on_push(LOOPS, 4), ids=[loop.__name__ for loop in LOOPS])
def test_a_wrong_loop_is_one_finding_at_its_line(loop, tmp_path):
    torch.manual_seed(0)
    found = [one for one in findings_of(loop, tmp_path) if one.severity != "note"]
    assert [one.rule for one in found] == [one.rule for one in found[:1]], found
    (finding,) = found
    assert finding.severity == "error"
    line = linecache.getline(__file__, finding.location.line)
    assert line.endswith(f"# {finding.rule}\n"), (finding.rule, finding.location.line)
