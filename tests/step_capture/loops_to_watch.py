"""Training loops that do more than forward, backward and step."""

import copy

import torch
from torch import nn
from torch.nn import functional
from torch.nn.functional import cross_entropy
from torch.optim.swa_utils import SWALR, AveragedModel, update_bn

from tests.step_capture.models_to_train import STEPS, Loop, convolutional, features, images, mlp


def lbfgs():
    model = nn.Linear(8, 4)
    optimizer = torch.optim.LBFGS(model.parameters(), lr=0.5, max_iter=4)
    x, y = features()

    def closure():
        optimizer.zero_grad()
        loss = cross_entropy(model(x), y)
        loss.backward()
        return loss

    return model, [optimizer.step(closure).detach() for _ in range(STEPS)]


def gradient_penalty():
    """A WGAN-GP: five steps of the critic for each of the generator."""
    made = nn.ModuleDict({"generator": mlp(0.0), "critic": nn.Linear(4, 1)})
    made["critic"] = nn.Sequential(nn.Linear(4, 16), nn.LeakyReLU(0.2), nn.Linear(16, 1))
    generator, critic = made["generator"], made["critic"]
    of_generator = torch.optim.Adam(generator.parameters(), lr=1e-3)
    of_critic = torch.optim.Adam(critic.parameters(), lr=1e-3)
    losses = []
    for _ in range(STEPS):
        for _ in range(5):
            real, fake = torch.randn(8, 4), generator(torch.randn(8, 8)).detach()
            mixed = (real + torch.rand(8, 1) * (fake - real)).requires_grad_()
            (slope,) = torch.autograd.grad(critic(mixed).sum(), mixed, create_graph=True)
            penalty = 10 * (slope.norm(dim=1) - 1).square().mean()
            loss = critic(fake).mean() - critic(real).mean() + penalty
            of_critic.zero_grad()
            loss.backward()
            of_critic.step()
        of_generator.zero_grad()
        loss = -critic(generator(torch.randn(8, 8))).mean()
        loss.backward()
        of_generator.step()
        losses.append(loss.detach())
    return made, losses


def accumulated():
    model, losses = mlp(), []
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(STEPS):
        for _ in range(3):
            x, y = features()
            loss = cross_entropy(model(x), y) / 3
            loss.backward()
            losses.append(loss.detach())
        nn.utils.clip_grad_norm_(model.parameters(), 0.1)
        optimizer.step()
        optimizer.zero_grad()
    return model, losses


def scaled():
    model, losses = convolutional(), []
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**20, growth_interval=3)
    for step in range(STEPS):
        x, y = images()
        with torch.autocast("cpu", dtype=torch.float16):
            loss = cross_entropy(model(x), y) * (float("inf") if step == 2 else 1)
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad()
        losses.append(loss.detach())
    return model, losses


def truncated():
    """Backpropagation through time, truncated: the state is carried on without its history."""
    cell, losses = nn.GRUCell(8, 4), []
    optimizer = torch.optim.RMSprop(cell.parameters(), lr=0.01)
    state = torch.zeros(16, 4)
    for _ in range(STEPS):
        loss = torch.zeros(())
        for _ in range(4):
            x, y = features()
            state = cell(x, state)
            loss = loss + cross_entropy(state, y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        state = state.detach()
        losses.append(loss.detach())
    return cell, losses


def averaged():
    """Averages of the weights: exponential by hand, and torch's own."""
    model, losses = convolutional(), []
    mean, swa = copy.deepcopy(model), AveragedModel(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    scheduler = SWALR(optimizer, swa_lr=0.05)
    seen = []
    for _ in range(STEPS):
        x, y = images()
        seen.append(x)
        optimizer.zero_grad()
        loss = cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        scheduler.step()
        swa.update_parameters(model)
        with torch.no_grad():
            for old, new in zip(mean.parameters(), model.parameters(), strict=True):
                old.lerp_(new, 0.1)
        losses.append(loss.detach())
    update_bn(seen, swa)
    return nn.ModuleList([model, mean, swa]), losses


def sharpness_aware():
    """SAM: two backward passes per step, the second one at weights that were moved by hand."""
    model, losses = mlp(), []
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    for _ in range(STEPS):
        x, y = features()
        cross_entropy(model(x), y).backward()
        norm = nn.utils.get_total_norm([p.grad for p in model.parameters()])
        moves = [0.05 * p.grad / (norm + 1e-12) for p in model.parameters()]
        with torch.no_grad():
            torch._foreach_add_(list(model.parameters()), moves)
        optimizer.zero_grad()
        loss = cross_entropy(model(x), y)
        loss.backward()
        with torch.no_grad():
            torch._foreach_sub_(list(model.parameters()), moves)
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.detach())
    return model, losses


def meta_learning():
    """Learns an initialisation through steps that `torch.func` makes."""
    model, losses = mlp(0.0), []
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)

    def task_loss(parameters, x, y):
        return cross_entropy(torch.func.functional_call(model, parameters, (x,)), y)

    for _ in range(STEPS):
        x, y = features()
        fast = dict(model.named_parameters())
        for _ in range(2):
            slopes = torch.func.grad(task_loss)(fast, x, y)
            fast = {name: fast[name] - 0.1 * slopes[name] for name in fast}
        with torch.no_grad():
            each = torch.func.vmap(torch.func.grad(task_loss), (None, 0, 0))(
                dict(model.named_parameters()), x[:, None], y[:, None]
            )
        optimizer.zero_grad()
        loss = task_loss(fast, *features())
        loss.backward()
        optimizer.step()
        losses += [loss.detach(), *(slope.norm() for slope in each.values())]
    return model, losses


def policy_gradient():
    policy, losses = mlp(0.0), []
    optimizer = torch.optim.Adam(policy.parameters(), lr=0.01)
    for _ in range(STEPS):
        saved, rewards, state = [], [], torch.randn(8)
        for _ in range(5):
            choice = torch.distributions.Categorical(logits=policy(state))
            action = choice.sample()
            saved.append(choice.log_prob(action))
            rewards.append(float(action) - 1.5)
            state = torch.randn(8) + action
        returns = torch.tensor(rewards).flip(0).cumsum(0).flip(0)
        optimizer.zero_grad()
        loss = -(torch.stack(saved) * returns).sum()
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
    return policy, losses


def denoising():
    """As a diffusion model learns: noise of a random size, and what it was."""
    model, losses = nn.Sequential(nn.Linear(9, 32), nn.SiLU(), nn.Linear(32, 8)), []
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    kept = torch.linspace(0.99, 0.01, 50)
    for _ in range(STEPS):
        clean, time = torch.randn(16, 8), torch.randint(0, 50, (16,))
        noise, share = torch.randn_like(clean), kept[time][:, None]
        noisy = share.sqrt() * clean + (1 - share).sqrt() * noise
        optimizer.zero_grad(set_to_none=False)
        loss = functional.mse_loss(model(torch.cat([noisy, time[:, None] / 50], 1)), noise)
        loss.backward()
        nn.utils.clip_grad_value_(model.parameters(), 0.01)
        optimizer.step()
        losses.append(loss.detach())
    return model, losses


def in_anomaly_mode():
    with torch.autograd.detect_anomaly(check_nan=False):
        return accumulated()


def retained():
    """Two backward passes through one graph, and one that keeps its own graph."""
    model, losses = mlp(), []
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    for _ in range(STEPS):
        x, y = features()
        loss = cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward(retain_graph=True)
        (2 * loss).backward(inputs=[model[0].weight], retain_graph=True)
        loss.backward(create_graph=True)
        optimizer.step()
        for parameter in model.parameters():
            parameter.grad = None
        losses.append(loss.detach())
    return model, losses


LOOPS: dict[str, Loop] = {
    loop.__name__: loop
    for loop in (
        lbfgs,
        gradient_penalty,
        accumulated,
        scaled,
        truncated,
        averaged,
        sharpness_aware,
        meta_learning,
        policy_gradient,
        denoising,
        in_anomaly_mode,
        retained,
    )
}
