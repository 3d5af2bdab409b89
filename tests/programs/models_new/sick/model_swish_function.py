import torch
import torch.nn as nn


class SwishFn(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        s = torch.sigmoid(x)
        ctx.save_for_backward(x, s)
        return x * s

    @staticmethod
    def backward(ctx, grad):
        x, s = ctx.saved_tensors
        return grad * s


class Swish(nn.Module):
    def forward(self, x):
        return SwishFn.apply(x)


def build_model():
    torch.manual_seed(281)
    return nn.Sequential(nn.Linear(7, 40), Swish(), nn.Linear(40, 40), Swish(), nn.Linear(40, 1))


def build_batch():
    g = torch.Generator().manual_seed(282)
    x = torch.randn(64, 7, generator=g)
    return x, torch.sin(2 * x[:, :1])


def loss_fn(output, batch):
    return nn.functional.mse_loss(output, batch[1])
