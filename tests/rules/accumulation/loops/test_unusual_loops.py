"""Training loops that order their calls in ways of their own, watched as they are: all healthy."""

import copy

import pytest
import torch
from torch import nn
from torch.func import functional_call
from torch.nn import functional

from tests.nightly import some_on_push
from tests.rules.watching import findings_of

STEPS = 8


@pytest.fixture(autouse=True)
def _seed():
    torch.manual_seed(0)


def net(outputs: int = 3) -> nn.Module:
    return nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, outputs))


def batch(rows: int = 16):
    return torch.randn(rows, 6), torch.arange(rows) % 3


def loss_of(model, features, target):
    return functional.cross_entropy(model(features), target)


def closures_of_lbfgs():
    model = net()
    optimizer = torch.optim.LBFGS(model.parameters(), lr=0.1, max_iter=4)
    features, target = batch()

    def closure():
        optimizer.zero_grad()
        loss = loss_of(model, features, target)
        loss.backward()
        return loss

    for _ in range(STEPS):
        optimizer.step(closure)


def closures_of_sgd():
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def closure():
        optimizer.zero_grad()
        loss = loss_of(model, *batch())
        loss.backward()
        return loss

    for _ in range(STEPS):
        optimizer.step(closure)


def sharpness_aware_minimization():
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(STEPS):
        features, target = batch()
        loss_of(model, features, target).backward()
        with torch.no_grad():
            ascent = [0.05 * p.grad / (p.grad.norm() + 1e-12) for p in model.parameters()]
            for parameter, step in zip(model.parameters(), ascent, strict=True):
                parameter.add_(step)
        optimizer.zero_grad()
        loss_of(model, features, target).backward()
        with torch.no_grad():
            for parameter, step in zip(model.parameters(), ascent, strict=True):
                parameter.sub_(step)
        optimizer.step()
        optimizer.zero_grad()


def projected_gradients_of_tasks():
    model = net()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    for _ in range(STEPS):
        kept = []
        for _ in range(3):
            optimizer.zero_grad()
            loss_of(model, *batch()).backward()
            kept.append([p.grad.clone() for p in model.parameters()])
        for parameter, *gradients in zip(model.parameters(), *kept, strict=True):
            parameter.grad = torch.stack(gradients).sum(0)
        optimizer.step()


def adversarial_training():
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(STEPS):
        features, target = batch()
        attacked = features.clone().requires_grad_()
        for _ in range(3):
            loss_of(model, attacked, target).backward()
            attacked = (attacked + 0.1 * attacked.grad.sign()).detach().requires_grad_()
        optimizer.zero_grad()
        loss_of(model, attacked.detach(), target).backward()
        optimizer.step()


def wasserstein_critics():
    generator, critic = nn.Linear(4, 6), net(1)
    of_generator = torch.optim.RMSprop(generator.parameters(), lr=1e-4)
    of_critic = torch.optim.RMSprop(critic.parameters(), lr=1e-4)
    for _ in range(STEPS):
        for _ in range(3):
            of_critic.zero_grad()
            fake = generator(torch.randn(16, 4)).detach()
            loss = critic(fake).mean() - critic(torch.randn(16, 6)).mean()
            mixed = fake.requires_grad_()
            (gradient,) = torch.autograd.grad(critic(mixed).sum(), mixed, create_graph=True)
            (loss + (gradient.norm(dim=1) - 1).square().mean()).backward()
            of_critic.step()
            with torch.no_grad():
                for parameter in critic.parameters():
                    parameter.clamp_(-1, 1)
        of_generator.zero_grad()
        (-critic(generator(torch.randn(16, 4))).mean()).backward()
        of_generator.step()


def critic_and_generator_from_one_graph():
    generator, critic = nn.Linear(4, 6), net(1)
    of_generator = torch.optim.Adam(generator.parameters(), lr=1e-3)
    of_critic = torch.optim.Adam(critic.parameters(), lr=1e-3)
    for _ in range(STEPS):
        score = critic(generator(torch.randn(16, 4))).mean()
        of_critic.zero_grad()
        of_generator.zero_grad()
        (-score).backward(inputs=list(generator.parameters()), retain_graph=True)
        (score - critic(torch.randn(16, 6)).mean()).backward(inputs=list(critic.parameters()))
        of_generator.step()
        of_critic.step()


def two_heads_with_a_backward_each():
    trunk, one, two = net(8), nn.Linear(8, 3), nn.Linear(8, 3)
    parameters = [*trunk.parameters(), *one.parameters(), *two.parameters()]
    optimizer = torch.optim.SGD(parameters, lr=0.1)
    for _ in range(STEPS):
        features, target = batch()
        hidden = trunk(features)
        optimizer.zero_grad()
        functional.cross_entropy(one(hidden), target).backward(retain_graph=True)
        functional.cross_entropy(two(hidden), target).backward()
        optimizer.step()


def truncated_backpropagation():
    cell, head = nn.GRUCell(6, 8), nn.Linear(8, 3)
    optimizer = torch.optim.Adam([*cell.parameters(), *head.parameters()], lr=1e-3)
    state = torch.zeros(16, 8)
    for _ in range(30):
        optimizer.zero_grad()
        loss = 0.0
        for _ in range(4):
            features, target = batch()
            state = cell(features, state)
            loss = loss + functional.cross_entropy(head(state), target)
        (loss / 4).backward()
        optimizer.step()
        state = state.detach()


def meta_learning():
    model = net()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    for _ in range(STEPS):
        optimizer.zero_grad()
        for _ in range(4):
            weights = dict(model.named_parameters())
            for _ in range(2):
                features, target = batch()
                inner = functional.cross_entropy(
                    functional_call(model, weights, (features,)), target
                )
                gradients = torch.autograd.grad(inner, weights.values(), create_graph=True)
                weights = {
                    name: weight - 0.1 * gradient
                    for (name, weight), gradient in zip(weights.items(), gradients, strict=True)
                }
            features, target = batch()
            outer = functional.cross_entropy(functional_call(model, weights, (features,)), target)
            (outer / 4).backward()
        optimizer.step()


def several_epochs_over_one_rollout():
    actor, critic = net(3), net(1)
    optimizer = torch.optim.Adam([*actor.parameters(), *critic.parameters()], lr=1e-3)
    for _ in range(3):
        features, actions = batch()
        with torch.no_grad():
            old = functional.log_softmax(actor(features), 1)[range(16), actions]
        for _ in range(4):
            new = functional.log_softmax(actor(features), 1)[range(16), actions]
            ratio = (new - old).exp()
            loss = -ratio.clamp(0.8, 1.2).mean() + 0.5 * critic(features).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()


def scaled_loss_whose_first_steps_are_skipped():
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, gamma=0.99)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**127)
    for _ in range(40):
        optimizer.zero_grad()
        scaler.scale(loss_of(model, *batch())).backward()
        scaler.step(optimizer)
        scaler.update()
        scheduler.step()


def steps_within_backward():
    model = net()
    optimizers = {p: torch.optim.SGD([p], lr=0.1) for p in model.parameters()}

    def step(parameter):
        optimizers[parameter].step()
        optimizers[parameter].zero_grad()

    for parameter in model.parameters():
        parameter.register_post_accumulate_grad_hook(step)
    for _ in range(STEPS):
        loss_of(model, *batch()).backward()


def backbone_unfrozen_later():
    backbone, head = net(8), nn.Linear(8, 3)
    backbone.requires_grad_(False)
    optimizers = [torch.optim.SGD(part.parameters(), lr=0.1) for part in (backbone, head)]
    for step in range(STEPS):
        backbone.requires_grad_(step > 2)
        features, target = batch()
        functional.cross_entropy(head(backbone(features)), target).backward()
        for optimizer in optimizers:
            optimizer.step()
            optimizer.zero_grad()


def zeroing_by_hand():
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(STEPS):
        loss_of(model, *batch()).backward()
        optimizer.step()
        for parameter in model.parameters():
            if step % 2:
                parameter.grad = None
            else:
                parameter.grad.data.zero_()


def gradients_divided_by_hand():
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(STEPS):
        optimizer.zero_grad()
        for _ in range(4):
            loss_of(model, *batch()).backward()
        for parameter in model.parameters():
            parameter.grad /= 4
        optimizer.step()


def averaged_weights_and_a_teacher():
    model = nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.Dropout(0.1), nn.Linear(8, 3))
    teacher = copy.deepcopy(model).requires_grad_(False).eval()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for _ in range(STEPS):
        features, target = batch()
        logits = model(features)
        loss = functional.cross_entropy(logits, target)
        loss = loss + functional.mse_loss(logits, teacher(features))
        optimizer.zero_grad(set_to_none=False)
        loss.backward()
        optimizer.step()
        with torch.no_grad():
            for mean, weight in zip(teacher.parameters(), model.parameters(), strict=True):
                mean.lerp_(weight, 0.01)


LOOPS = [
    closures_of_lbfgs,
    closures_of_sgd,
    sharpness_aware_minimization,
    projected_gradients_of_tasks,
    adversarial_training,
    wasserstein_critics,
    critic_and_generator_from_one_graph,
    two_heads_with_a_backward_each,
    truncated_backpropagation,
    meta_learning,
    several_epochs_over_one_rollout,
    scaled_loss_whose_first_steps_are_skipped,
    steps_within_backward,
    backbone_unfrozen_later,
    zeroing_by_hand,
    gradients_divided_by_hand,
    averaged_weights_and_a_teacher,
]


@pytest.mark.parametrize("loop", some_on_push(LOOPS, 8), ids=[loop.__name__ for loop in LOOPS])
def test_a_healthy_loop_is_not_accused(loop, tmp_path):
    found = [one for one in findings_of(loop, tmp_path) if one.rule.startswith("GS3")]
    assert not [(one.rule, one.severity, one.message) for one in found]
