"""Loops of two networks with an optimizer each, of which one is used by the other's loss."""

import torch
from torch import nn
from torch.nn import functional

STEPS = 8


class Players:
    """A generator and a discriminator."""

    def __init__(self):
        torch.manual_seed(0)
        self.maker, self.judge = nn.Linear(3, 2), nn.Linear(2, 1)
        self.of_maker = torch.optim.SGD(self.maker.parameters(), lr=0.01)
        self.of_judge = torch.optim.SGD(self.judge.parameters(), lr=0.01)

    def made(self):
        return self.maker(torch.randn(6, 3))

    def score(self, points, goal):
        logits = self.judge(points)
        return functional.binary_cross_entropy_with_logits(logits, torch.full((6, 1), goal))

    def judging(self, made):
        return self.score(torch.randn(6, 2), 1.0) + self.score(made, 0.0)


def leaking(p):
    p.of_maker.zero_grad()
    p.of_judge.zero_grad()
    p.score(p.made(), 1.0).backward()
    p.of_maker.step()
    p.judging(p.made().detach()).backward()
    p.of_judge.step()


def upstream(p):
    p.of_maker.zero_grad()
    p.of_judge.zero_grad()
    p.judging(p.made()).backward()
    p.of_judge.step()
    p.score(p.made(), 1.0).backward()
    p.of_maker.step()


def zeroed_too_early(p):
    p.judging(p.made().detach()).backward()
    p.of_judge.step()
    p.of_judge.zero_grad()
    p.of_maker.zero_grad()
    p.score(p.made(), 1.0).backward()
    p.of_maker.step()


def zeroed_in_between(p):
    p.of_maker.zero_grad()
    p.score(p.made(), 1.0).backward()
    p.of_maker.step()
    p.of_judge.zero_grad()
    p.judging(p.made().detach()).backward()
    p.of_judge.step()


def zeroed_by_the_module(p):
    p.maker.zero_grad()
    p.score(p.made(), 1.0).backward()
    p.of_maker.step()
    p.judge.zero_grad()
    p.judging(p.made().detach()).backward()
    p.of_judge.step()


def zeroed_by_hand(p):
    for parameter in p.maker.parameters():
        parameter.grad = None
    p.score(p.made(), 1.0).backward()
    p.of_maker.step()
    for parameter in p.judge.parameters():
        parameter.grad = None
    p.judging(p.made().detach()).backward()
    p.of_judge.step()


def frozen_meanwhile(p):
    p.of_maker.zero_grad()
    p.of_judge.zero_grad()
    p.judge.requires_grad_(False)
    p.score(p.made(), 1.0).backward()
    p.judge.requires_grad_(True)
    p.of_maker.step()
    p.judging(p.made().detach()).backward()
    p.of_judge.step()


def one_loss_for_both(p):
    p.of_maker.zero_grad()
    p.of_judge.zero_grad()
    p.score(p.made(), 1.0).backward()
    p.of_maker.step()
    p.of_judge.step()


def two_losses_then_two_steps(p):
    p.of_maker.zero_grad()
    p.of_judge.zero_grad()
    p.score(p.made(), 1.0).backward()
    p.judging(p.made().detach()).backward()
    p.of_maker.step()
    p.of_judge.step()


def two_parts_of_the_judges_loss(p):
    p.of_judge.zero_grad()
    p.score(torch.randn(6, 2), 1.0).backward()
    p.score(p.made().detach(), 0.0).backward()
    p.of_judge.step()
    p.of_maker.zero_grad()
    p.score(p.made(), 1.0).backward()
    p.of_maker.step()


def trunk_that_steps_after_its_heads(p):
    """The maker is a trunk that learns from both losses, and steps together with the last."""
    p.of_maker.zero_grad()
    p.of_judge.zero_grad()
    p.score(p.made(), 1.0).backward()
    p.of_judge.step()
    p.of_judge.zero_grad()
    p.score(p.made(), 0.0).backward()
    p.of_judge.step()
    p.of_maker.step()


def updated(loss, optimizer):
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()


def updated_afresh(loss, optimizer):
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()


def leaking_in_a_helper(p):
    updated(p.score(p.made(), 1.0), p.of_maker)
    updated(p.judging(p.made().detach()), p.of_judge)


def apart_in_a_helper(p):
    updated_afresh(p.score(p.made(), 1.0), p.of_maker)
    updated_afresh(p.judging(p.made().detach()), p.of_judge)


def trunk_and_head_in_a_helper(p):
    """The judge is a head of both losses, and steps with the second one of each pair."""
    updated(p.score(p.made(), 1.0), p.of_maker)
    updated(p.score(p.made(), 0.0), p.of_judge)


LOOPS = {
    one.__name__: one
    for one in (
        leaking,
        upstream,
        zeroed_too_early,
        zeroed_in_between,
        zeroed_by_the_module,
        zeroed_by_hand,
        frozen_meanwhile,
        one_loss_for_both,
        two_losses_then_two_steps,
        two_parts_of_the_judges_loss,
        trunk_that_steps_after_its_heads,
        leaking_in_a_helper,
        apart_in_a_helper,
        trunk_and_head_in_a_helper,
    )
}
SICK = {"leaking": 0, "upstream": 0, "zeroed_too_early": 1, "leaking_in_a_helper": 0}
"""By name of a loop: which of its backward calls, counted from 0, leaves the gradients."""


def players(name, steps=STEPS):
    """Run a loop."""
    both = Players()
    for _ in range(steps):
        LOOPS[name](both)
