import torch
import torch.nn as nn


class LogCosh(torch.autograd.Function):
    @staticmethod
    def forward(ctx, error):
        ctx.save_for_backward(error)
        return error.abs() + torch.nn.functional.softplus(-2 * error.abs()) - 0.6931471805599453

    @staticmethod
    def backward(ctx, grad):
        (error,) = ctx.saved_tensors
        return grad * torch.tanh(error)


def build_model():
    torch.manual_seed(481)
    return nn.Sequential(nn.Linear(5, 32), nn.ELU(), nn.Linear(32, 1))


def build_batch():
    g = torch.Generator().manual_seed(482)
    x = torch.randn(64, 5, generator=g)
    return x, 3 * x[:, :1] * x[:, 1:2]


def loss_fn(output, batch):
    return LogCosh.apply(output - batch[1]).mean()
