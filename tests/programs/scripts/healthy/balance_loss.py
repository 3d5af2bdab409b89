import torch
import torch.nn as nn
import torch.nn.functional as F


class AddAuxiliaryLoss(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, loss):
        ctx.save_for_backward(loss)
        return x.view_as(x)

    @staticmethod
    def backward(ctx, grad):
        (loss,) = ctx.saved_tensors
        return grad, torch.ones_like(loss)


class Gate(nn.Module):
    def __init__(self, dim, experts, top_k=2, coefficient=0.05):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(experts, dim) * 0.2)
        self.top_k, self.coefficient, self.experts = top_k, coefficient, experts

    def forward(self, x):
        scores = F.linear(x, self.weight).softmax(-1)
        weights, indices = scores.topk(self.top_k, -1)
        if self.training:
            load = F.one_hot(indices, self.experts).float().sum(1).mean(0)
            balance = self.coefficient * self.experts * (load * scores.mean(0)).sum()
            weights = AddAuxiliaryLoss.apply(weights, balance)
        return weights, indices


class Layer(nn.Module):
    def __init__(self, dim=16, experts=6):
        super().__init__()
        self.gate = Gate(dim, experts)
        self.up = nn.Parameter(torch.randn(experts, dim, 2 * dim) * 0.1)
        self.down = nn.Parameter(torch.randn(experts, 2 * dim, dim) * 0.1)

    def forward(self, x):
        weights, indices = self.gate(x)
        hidden = F.silu(torch.einsum("nd,edh->neh", x, self.up))
        outputs = torch.einsum("neh,ehd->ned", hidden, self.down)
        chosen = outputs.gather(1, indices[..., None].expand(-1, -1, x.shape[1]))
        return x + (weights[..., None] * chosen).sum(1)


def build():
    return nn.Sequential(nn.Linear(10, 16), Layer(), nn.LayerNorm(16), Layer(), nn.Linear(16, 3))


def training(model, steps):
    teacher = nn.Sequential(nn.Linear(10, 32), nn.Tanh(), nn.Linear(32, 3)).requires_grad_(False)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    for _ in range(steps):
        x = torch.randn(128, 10)
        loss = F.mse_loss(model(x), teacher(x))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        yield loss.item()


if __name__ == "__main__":
    torch.manual_seed(14)
    losses = list(training(build(), 120))
    print(losses[::20])
