"""Training loops with a non-finite value in one step, each in a different operation."""

import math

import torch
from torch import nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint


def model():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 4))


def train(loss_of, at, *, after=2, passes=1, clips=False, scaler=None):
    """Train with a loss that is given the model, a batch, and whether it is the one to break."""
    net = model()
    optimizer = torch.optim.SGD(net.parameters(), lr=1e-3)
    for step in range(at + 1 + after):
        optimizer.zero_grad()
        for part in range(passes):
            x = torch.randn(16, 4)
            loss = loss_of(net, x, step == at and part == passes - 1) / passes
            (loss if scaler is None else scaler.scale(loss)).backward()
        if scaler is not None:
            scaler.unscale_(optimizer)
        if clips:
            nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        if scaler is None:
            optimizer.step()
        else:
            scaler.step(optimizer)
            scaler.update()


def log_of_zero(net, x, breaks):
    chance = net(x).sigmoid() * (0.0 if breaks else 1.0)
    return -chance.log().mean()  # here


def division(net, x, breaks):
    length = x.abs().sum(1, keepdim=True) * (0.0 if breaks else 1.0)
    scaled = net(x) / length  # here
    return scaled.square().mean()


def reciprocal(net, x, breaks):
    square = net(x).square().sum(1) * (0.0 if breaks else 1.0)
    return (1 / (square + (0.0 if breaks else 1.0))).mean()  # here


def root_of_negative(net, x, breaks):
    square = net(x).square().mean() * (-1.0 if breaks else 1.0)
    return square.sqrt()  # here


def exponential(net, x, breaks):
    scores = net(x) * (1e4 if breaks else 1.0)
    chances = scores.exp()  # here
    return chances.sum(1).mean()


def blocked_softmax(net, x, breaks):
    mask = torch.zeros(16, 4, dtype=torch.bool)
    mask[3] = breaks
    scores = net(x).masked_fill(mask, -math.inf)
    chances = scores.softmax(-1)  # here
    return (chances * x).square().mean()


def softmax_of_added_mask(net, x, breaks):
    mask = torch.zeros(16, 4)
    mask[:, 0] = -math.inf
    if breaks:
        mask[3] = -math.inf
    chances = (net(x) + mask).softmax(-1)  # here
    return (chances * x).square().mean()


def half_precision(net, x, breaks):
    factor = 30_000.0 if breaks else 1.0
    with torch.autocast("cpu", dtype=torch.float16):
        scores = net(x) * 10.0
        large = scores * factor  # here
    return large.float().abs().mean()


def custom_function(net, x, breaks):
    given = net(x) * (0.0 if breaks else 1.0) + (0.0 if breaks else 10.0)
    result = Inverse.apply(given)  # here
    return result.tanh().sum() + result.mean()


class Inverse(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return 1 / x

    @staticmethod
    def backward(ctx, gradient):
        (x,) = ctx.saved_tensors
        return -gradient / x**2


def checkpointed(net, x, breaks):
    hidden = checkpoint(net, x, use_reentrant=False) * (0.0 if breaks else 1.0)
    return hidden.abs().log().mean()  # here


def batch(net, x, breaks):
    if breaks:
        x[2, 1] = math.nan
    out = net(x)  # here
    return out.square().mean()


def target(net, x, breaks):
    wanted = torch.zeros(16, 4)
    wanted[1, 1] = math.nan if breaks else 0.0
    return functional.mse_loss(net(x), wanted)  # here


def subtracted_target(net, x, breaks):
    wanted = torch.zeros(16, 4)
    wanted[1, 1] = math.nan if breaks else 0.0
    difference = net(x) - wanted  # here
    return difference.square().mean()


IN_FORWARD = {
    "log": log_of_zero,
    "div": division,
    "reciprocal": reciprocal,
    "sqrt": root_of_negative,
    "exp": exponential,
    "softmax": blocked_softmax,
    "softmax by addition": softmax_of_added_mask,
    "mul in float16": half_precision,
    "Inverse": custom_function,
    "log behind a checkpoint": checkpointed,
    "addmm of the batch": batch,
    "mse_loss of the target": target,
    "sub of the target": subtracted_target,
}
"""By the operation that breaks; its line ends in `# here`."""


def root(net, x, breaks):
    square = (net(x) * (0.0 if breaks else 1.0)).square().sum(1)
    return square.sqrt().mean()  # here


def norm_by_hand(net, x, breaks):
    out = net(x) * (0.0 if breaks else 1.0)
    return (out**2).sum().sqrt()  # here


def arc_cosine(net, x, breaks):
    cosine = torch.tanh(net(x) * (1e6 if breaks else 1.0))
    return cosine.acos().mean()  # here


def fractional_power(net, x, breaks):
    out = net(x).abs() * (0.0 if breaks else 1.0)
    return (out**0.5).mean()  # here


def branch_not_chosen(net, x, breaks):
    out = net(x) + (0.0 if breaks else 100.0)
    root = out.sqrt()  # here
    return torch.where(out > 0, root, torch.zeros_like(out)).mean()


IN_BACKWARD = {
    "Sqrt": root,
    "Sqrt of a norm": norm_by_hand,
    "Acos": arc_cosine,
    "Pow": fractional_power,
    "Sqrt before where": branch_not_chosen,
}
"""By the operation whose backward breaks."""


def masked_attention(net, x, breaks):
    mask = torch.ones(4, 4).triu(1).bool()
    scores = (net(x)[:4] @ net(x)[:4].T).masked_fill(mask, -math.inf)
    return (scores.softmax(-1) @ x[:4]).square().mean()


def masked_choice(net, x, breaks):
    allowed = torch.tensor([True, True, True, False])
    scores = net(x).masked_fill(~allowed, -math.inf)
    return -scores.log_softmax(-1)[:, 0].mean()


def safe_division(net, x, breaks):
    count = (x > 0).float() * (0.0 if breaks else 1.0)
    is_some = count > 0
    return torch.where(is_some, net(x) / torch.where(is_some, count, 1.0), 0.0).mean()


def norm_of_zeros(net, x, breaks):
    return (net(x) * (0.0 if breaks else 1.0)).norm(dim=1).mean()


def root_of_what_is_cut(net, x, breaks):
    with torch.no_grad():
        scale = (net(x) * 0.0).square().sum().sqrt()
    return net(x).square().mean() + scale


HEALTHY = {
    "masked attention": masked_attention,
    "masked choice": masked_choice,
    "safe division": safe_division,
    "norm of zeros": norm_of_zeros,
    "root without gradients": root_of_what_is_cut,
}
