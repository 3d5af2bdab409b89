"""Loops of torch that clip in unusual and right ways: no rule on clips accuses one of them."""

import math

import pytest
import torch
from torch import nn
from torch.nn import functional
from torch.nn.utils import clip_grad_norm_

from tests.nightly import some_on_push
from tests.rules.watching import findings_of

STEPS = 24


def network(outputs=3):
    return nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, outputs))


def batch(rows=8):
    return torch.randn(rows, 8), torch.randint(3, (rows,))


def loss_of(model, rows=8):
    inputs, target = batch(rows)
    return functional.cross_entropy(model(inputs), target)


def plain():
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(STEPS):
        optimizer.zero_grad()
        loss_of(model).backward()
        clip_grad_norm_(model.parameters(), 0.1)
        optimizer.step()


def zero_at_the_end_filled_with_zeros():
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(STEPS):
        loss_of(model).backward()
        clip_grad_norm_(model.parameters(), 0.1)
        optimizer.step()
        optimizer.zero_grad(set_to_none=False)


def norm_that_is_logged_before_and_after():
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(STEPS):
        optimizer.zero_grad()
        loss_of(model).backward()
        clip_grad_norm_(model.parameters(), 0.1)
        optimizer.step()
        clip_grad_norm_(model.parameters(), float("inf"))


def two_networks_each_with_its_own_clip():
    generator, critic = network(8), network(1)
    first = torch.optim.Adam(generator.parameters(), lr=1e-3)
    second = torch.optim.Adam(critic.parameters(), lr=1e-3)
    for _ in range(STEPS):
        noise, _ = batch()
        second.zero_grad()
        (critic(generator(noise).detach()).mean() - critic(torch.randn(8, 8)).mean()).backward()
        clip_grad_norm_(critic.parameters(), 0.1)
        second.step()
        first.zero_grad()
        (-critic(generator(noise)).mean()).backward()
        clip_grad_norm_(generator.parameters(), 0.1)
        first.step()


def parts_with_limits_of_their_own():
    model = network()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for _ in range(STEPS):
        optimizer.zero_grad()
        loss_of(model).backward()
        clip_grad_norm_(model[0].parameters(), 0.1)
        clip_grad_norm_(model[2].parameters(), 0.5)
        optimizer.step()


def loop_over_parameters():
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(STEPS):
        optimizer.zero_grad()
        loss_of(model).backward()
        for parameter in model.parameters():
            nn.utils.clip_grad_value_(parameter, 0.3)  # outliers alone
        optimizer.step()


def frozen_backbone():
    backbone, head = network(16), nn.Linear(16, 3)
    backbone.requires_grad_(False)
    optimizer = torch.optim.SGD([*backbone.parameters(), *head.parameters()], lr=0.1)
    for _ in range(STEPS):
        inputs, target = batch()
        optimizer.zero_grad()
        functional.cross_entropy(head(backbone(inputs)), target).backward()
        clip_grad_norm_(backbone.parameters(), 0.1)
        clip_grad_norm_(head.parameters(), 0.1)
        optimizer.step()


def only_what_requires_grad():
    model = network()
    model[0].requires_grad_(False)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(STEPS):
        optimizer.zero_grad()
        loss_of(model).backward()
        clip_grad_norm_([p for p in model.parameters() if p.grad is not None], 0.1)
        optimizer.step()


def accumulation_with_one_clip():
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for micro in range(4 * STEPS):
        (loss_of(model) / 4).backward()
        if micro % 4 == 3:
            clip_grad_norm_(model.parameters(), 0.05)
            optimizer.step()
            optimizer.zero_grad()


def scaler_in_the_right_order():
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**12)
    for _ in range(STEPS):
        optimizer.zero_grad()
        with torch.autocast("cpu", dtype=torch.bfloat16):
            loss = loss_of(model)
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        clip_grad_norm_(model.parameters(), 0.1)
        scaler.step(optimizer)
        scaler.update()


def scaler_that_is_switched_off():
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    scaler = torch.amp.GradScaler("cpu", enabled=False)
    for _ in range(STEPS):
        optimizer.zero_grad()
        scaler.scale(loss_of(model)).backward()
        clip_grad_norm_(model.parameters(), 0.1)
        scaler.step(optimizer)
        scaler.update()


def limit_times_the_scale():
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**12)
    for _ in range(STEPS):
        optimizer.zero_grad()
        scaler.scale(loss_of(model)).backward()
        clip_grad_norm_(model.parameters(), 0.1 * scaler.get_scale())
        scaler.step(optimizer)
        scaler.update()


def search_for_the_scale(*, fused=False):
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, fused=fused)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**100)
    for step in range(STEPS):
        optimizer.zero_grad()
        scaler.scale(loss_of(model) * (1e10 if step < 4 else 1.0)).backward()
        scaler.unscale_(optimizer)
        clip_grad_norm_(model.parameters(), 0.1)
        scaler.step(optimizer)
        scaler.update()


def search_for_the_scale_by_an_optimizer_that_skips():
    search_for_the_scale(fused=True)


def steps_that_are_left_out_by_hand():
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(STEPS):
        optimizer.zero_grad()
        (loss_of(model) * (math.nan if step == 10 else 1.0)).backward()
        norm = clip_grad_norm_(model.parameters(), 1.0)
        if torch.isfinite(norm):
            optimizer.step()


def private_examples():
    """Differential privacy by hand: the sum of clipped gradients is put in their place."""
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(STEPS):
        sums = [torch.zeros_like(p) for p in model.parameters()]
        for _ in range(4):
            model.zero_grad()
            loss_of(model, rows=1).backward()
            clip_grad_norm_(model.parameters(), 0.1)
            for total, parameter in zip(sums, model.parameters(), strict=True):
                total += parameter.grad
        for total, parameter in zip(sums, model.parameters(), strict=True):
            parameter.grad = total / 4 + 0.01 * torch.randn_like(total)
        optimizer.step()


def closures():
    model = network()
    optimizer = torch.optim.LBFGS(model.parameters(), lr=0.5, max_iter=4)
    inputs, target = batch()

    def closure():
        optimizer.zero_grad()
        loss = functional.cross_entropy(model(inputs), target)
        loss.backward()
        clip_grad_norm_(model.parameters(), 1.0)
        return loss

    for _ in range(6):
        optimizer.step(closure)


def clip_by_hand():
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(STEPS):
        optimizer.zero_grad()
        loss_of(model).backward()
        norm = nn.utils.get_total_norm([p.grad for p in model.parameters()])
        nn.utils.clip_grads_with_norm_(model.parameters(), 0.1, norm)
        optimizer.step()


def half_precision_with_a_large_rate():
    model = network().to(torch.bfloat16)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    for _ in range(STEPS):
        inputs, target = batch()
        optimizer.zero_grad()
        functional.cross_entropy(model(inputs.bfloat16()).float(), target).backward()
        optimizer.step()


LOOPS = [
    plain,
    zero_at_the_end_filled_with_zeros,
    norm_that_is_logged_before_and_after,
    two_networks_each_with_its_own_clip,
    parts_with_limits_of_their_own,
    loop_over_parameters,
    frozen_backbone,
    only_what_requires_grad,
    accumulation_with_one_clip,
    scaler_in_the_right_order,
    scaler_that_is_switched_off,
    limit_times_the_scale,
    search_for_the_scale,
    search_for_the_scale_by_an_optimizer_that_skips,
    steps_that_are_left_out_by_hand,
    private_examples,
    closures,
    clip_by_hand,
    half_precision_with_a_large_rate,
]


@pytest.mark.parametrize("loop", some_on_push(LOOPS, 3), ids=[loop.__name__ for loop in LOOPS])
def test_right_loop_is_not_accused(loop, tmp_path):
    torch.manual_seed(0)
    found = findings_of(loop, tmp_path)
    assert [(one.rule, one.message) for one in found] == []
