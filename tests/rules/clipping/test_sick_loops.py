"""Loops of torch that clip wrongly: each is found by its rule, at the line of the clip."""

import linecache

import pytest
import torch
from torch import nn
from torch.nn.utils import clip_grad_norm_

from tests.nightly import some_on_push
from tests.rules.clipping.test_healthy_loops import STEPS, loss_of, network
from tests.rules.watching import findings_of


def made():
    model = network()
    return model, torch.optim.SGD(model.parameters(), lr=0.1)


def behind_the_step_before_zeroing():
    model, optimizer = made()
    for _ in range(STEPS):
        loss_of(model).backward()
        optimizer.step()
        clip_grad_norm_(model.parameters(), 0.1)  # GS401
        optimizer.zero_grad()


def behind_the_steps_of_two_optimizers():
    (first, first_optimizer), (second, second_optimizer) = made(), made()
    for _ in range(STEPS):
        first_optimizer.zero_grad()
        second_optimizer.zero_grad()
        (loss_of(first) + loss_of(second)).backward()
        first_optimizer.step()
        second_optimizer.step()
        clip_grad_norm_([*first.parameters(), *second.parameters()], 0.1)  # GS401


def behind_the_step_of_a_scaler():
    model, optimizer = made()
    scaler = torch.amp.GradScaler("cpu", init_scale=4096.0)
    for _ in range(STEPS):
        optimizer.zero_grad()
        scaler.scale(loss_of(model)).backward()
        scaler.step(optimizer)
        scaler.update()
        clip_grad_norm_(model.parameters(), 0.1)  # GS401


def at_the_head_of_the_loop():
    model, optimizer = made()
    for _ in range(STEPS):
        clip_grad_norm_(model.parameters(), 0.1)  # GS402
        optimizer.zero_grad()
        loss_of(model).backward()
        optimizer.step()


def at_the_end_of_the_loop_behind_zeroing():
    model, optimizer = made()
    for _ in range(STEPS):
        loss_of(model).backward()
        optimizer.step()
        optimizer.zero_grad()
        clip_grad_norm_(model.parameters(), 0.1)  # GS402


def of_gradients_that_are_zeros():
    model, optimizer = made()
    for _ in range(STEPS):
        optimizer.zero_grad(set_to_none=False)
        clip_grad_norm_(model.parameters(), 0.1)  # GS402
        loss_of(model).backward()
        optimizer.step()


def of_scaled_gradients_in_accumulation():
    model, optimizer = made()
    scaler = torch.amp.GradScaler("cpu", init_scale=4096.0)
    for micro in range(4 * STEPS):
        scaler.scale(loss_of(model) / 4).backward()
        if micro % 4 == 3:
            clip_grad_norm_(model.parameters(), 0.01)  # GS403
            scaler.step(optimizer)
            scaler.update()
            optimizer.zero_grad()


def of_an_iterator_that_was_kept():
    model, optimizer = made()
    parameters = model.parameters()
    for _ in range(STEPS):
        optimizer.zero_grad()
        loss_of(model).backward()
        clip_grad_norm_(parameters, 0.1)  # GS404
        optimizer.step()


def of_an_iterator_that_the_optimizer_has_used_up():
    model = network()
    parameters = model.parameters()
    optimizer = torch.optim.SGD(parameters, lr=0.1)
    for _ in range(STEPS):
        optimizer.zero_grad()
        loss_of(model).backward()
        clip_grad_norm_(parameters, 0.1)  # GS404
        optimizer.step()


def by_value_of_one_layer():
    model, optimizer = made()
    for _ in range(STEPS):
        optimizer.zero_grad()
        loss_of(model).backward()
        nn.utils.clip_grad_value_(model[0].parameters(), 1e-4)  # GS404
        optimizer.step()


def to_a_hundredth_of_each_step():
    model, optimizer = made()
    for _ in range(STEPS):
        optimizer.zero_grad()
        loss_of(model).backward()
        clip_grad_norm_(model.parameters(), 1e-3)  # GS405
        optimizer.step()


def to_what_no_gradient_comes_near():
    model, optimizer = made()
    for _ in range(STEPS):
        optimizer.zero_grad()
        loss_of(model).backward()
        clip_grad_norm_(model.parameters(), 100.0)  # GS406
        optimizer.step()


def by_a_small_value():
    model, optimizer = made()
    for _ in range(STEPS):
        optimizer.zero_grad()
        loss_of(model).backward()
        for parameter in model.parameters():
            nn.utils.clip_grad_value_(parameter, 0.003)  # GS407
        optimizer.step()


def of_each_parameter_by_its_own_norm():
    model, optimizer = made()
    for _ in range(STEPS):
        optimizer.zero_grad()
        loss_of(model).backward()
        for parameter in model.parameters():
            clip_grad_norm_(parameter, 0.02)  # GS407
        optimizer.step()


def of_an_infinite_derivative():
    model, optimizer = made()
    for step in range(STEPS):
        optimizer.zero_grad()
        loss = loss_of(model)
        if step == 10:
            loss = loss + (model[2].bias[0] * 0).sqrt()
        loss.backward()
        clip_grad_norm_(model.parameters(), 0.1)  # GS408
        optimizer.step()


def of_a_norm_that_overflows():
    model, optimizer = made()
    for step in range(STEPS):
        optimizer.zero_grad()
        (loss_of(model) * (1e30 if step == 10 else 1.0)).backward()
        clip_grad_norm_(model.parameters(), 0.1)  # GS408
        optimizer.step()


def by_value_inside_accumulation():
    model, optimizer = made()
    for micro in range(4 * STEPS):
        (loss_of(model) / 4).backward()
        nn.utils.clip_grad_value_(model.parameters(), 1e-3)  # GS409
        if micro % 4 == 3:
            optimizer.step()
            optimizer.zero_grad()


def below_zero():
    model, optimizer = made()
    for _ in range(STEPS):
        optimizer.zero_grad()
        loss_of(model).backward()
        clip_grad_norm_(model.parameters(), -1.0)  # GS410
        optimizer.step()


def where_no_step_is_ever_made():
    model, optimizer = made()
    scaler = torch.amp.GradScaler("cpu")
    for _ in range(STEPS):
        optimizer.zero_grad()
        scaler.scale(loss_of(model) + (model[2].bias[0] * 0).sqrt()).backward()  # GS103
        scaler.step(optimizer)  # GS602
        scaler.update()


LOOPS = [
    behind_the_step_before_zeroing,
    behind_the_steps_of_two_optimizers,
    behind_the_step_of_a_scaler,
    at_the_head_of_the_loop,
    at_the_end_of_the_loop_behind_zeroing,
    of_gradients_that_are_zeros,
    of_scaled_gradients_in_accumulation,
    of_an_iterator_that_was_kept,
    of_an_iterator_that_the_optimizer_has_used_up,
    by_value_of_one_layer,
    to_a_hundredth_of_each_step,
    to_what_no_gradient_comes_near,
    by_a_small_value,
    of_each_parameter_by_its_own_norm,
    of_an_infinite_derivative,
    of_a_norm_that_overflows,
    by_value_inside_accumulation,
    below_zero,
    where_no_step_is_ever_made,
]


@pytest.mark.filterwarnings("ignore:`parameters` is an empty generator")
@pytest.mark.parametrize("loop", some_on_push(LOOPS, 4), ids=[loop.__name__ for loop in LOOPS])
def test_wrong_loop_is_found_by_its_rule_alone(loop, tmp_path):
    torch.manual_seed(0)
    (found,) = findings_of(loop, tmp_path)
    line = linecache.getline(__file__, found.location.line)
    assert line.endswith(f"# {found.rule}\n")
