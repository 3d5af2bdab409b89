import torch
from torch import nn


class FusedLinearGELU(torch.autograd.Function):
    """gelu(x W^T + b) that stores only the pre-activation."""

    @staticmethod
    def forward(ctx, x, weight, bias):
        pre = x @ weight.t() + bias
        ctx.save_for_backward(x, weight, pre)
        return nn.functional.gelu(pre)

    @staticmethod
    def backward(ctx, grad):
        x, weight, pre = ctx.saved_tensors
        cdf = 0.5 * (1 + torch.erf(pre / 2**0.5))
        pdf = torch.exp(-0.5 * pre**2) / (2 * torch.pi) ** 0.5
        grad = grad * (cdf + pre * pdf)
        grad_x = grad_w = grad_b = None
        if ctx.needs_input_grad[0]:
            grad_x = grad @ weight
        if ctx.needs_input_grad[1]:
            grad_w = grad.flatten(0, -2).t() @ x.flatten(0, -2)
        if ctx.needs_input_grad[2]:
            grad_b = grad.flatten(0, -2).sum(0)
        return grad_x, grad_w, grad_b


class Layer(nn.Module):
    def __init__(self, d_in, d_out):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(d_out, d_in) / d_in**0.5)
        self.bias = nn.Parameter(torch.zeros(d_out))

    def forward(self, x):
        return FusedLinearGELU.apply(x, self.weight, self.bias)


class Mixer(nn.Module):
    def __init__(self):
        super().__init__()
        self.l1 = Layer(12, 32)
        self.l2 = Layer(32, 32)
        self.out = nn.Linear(32, 5)

    def forward(self, x):
        return self.out(self.l2(self.l1(x)).mean(1))


def build_model():
    torch.manual_seed(0)
    return Mixer()


def build_batch():
    g = torch.Generator().manual_seed(1)
    return torch.randn(16, 6, 12, generator=g), torch.randint(0, 5, (16,), generator=g)


def loss_fn(output, batch):
    return nn.functional.cross_entropy(output, batch[1])
