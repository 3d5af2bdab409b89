import torch
import torch.nn.functional as F
from torch import nn


class RMSNormFunction(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, weight, eps):
        inverse = torch.rsqrt(x.pow(2).mean(dim=-1, keepdim=True) + eps)
        normed = x * inverse
        ctx.save_for_backward(normed, weight, inverse)
        return normed * weight

    @staticmethod
    def backward(ctx, grad):
        normed, weight, inverse = ctx.saved_tensors
        inner = grad * weight
        grad_x = inverse * (inner - normed * (inner * normed).mean(dim=-1, keepdim=True))
        grad_weight = (grad * normed).flatten(0, -2).sum(dim=0)
        return grad_x, grad_weight, None


class RMSNorm(nn.Module):
    def __init__(self, dim, eps=1e-6):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(dim))
        self.eps = eps

    def forward(self, x):
        return RMSNormFunction.apply(x, self.weight, self.eps)


class GatedBlock(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.norm = RMSNorm(dim)
        self.up = nn.Linear(dim, 4 * dim, bias=False)
        self.down = nn.Linear(2 * dim, dim, bias=False)

    def forward(self, x):
        a, b = self.up(self.norm(x)).chunk(2, dim=-1)
        return x + self.down(F.silu(a) * b)


class Model(nn.Module):
    def __init__(self, vocab=20, dim=32, depth=3):
        super().__init__()
        self.embed = nn.Embedding(vocab, dim)
        self.blocks = nn.Sequential(*(GatedBlock(dim) for _ in range(depth)))
        self.mix = nn.Conv1d(dim, dim, 3, padding=1)
        self.norm = RMSNorm(dim)
        self.head = nn.Linear(dim, vocab)

    def forward(self, ids):
        x = self.embed(ids)
        x = x + self.mix(x.transpose(1, 2)).transpose(1, 2)
        return self.head(self.norm(self.blocks(x)))


class GradientLog:
    def __init__(self, model, scale=0.5):
        self.norms = {}
        self.handles = [model.embed.weight.register_hook(lambda g: g * scale)]
        for name, p in model.named_parameters():
            self.handles.append(p.register_post_accumulate_grad_hook(self.recorder(name)))

    def recorder(self, name):
        def record(p):
            self.norms[name] = p.grad.norm().item()

        return record

    def close(self):
        for handle in self.handles:
            handle.remove()


def main():
    torch.manual_seed(51)
    model = Model()
    log = GradientLog(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
    for step in range(30):
        ids = torch.randint(0, 20, (16, 12))
        targets = (ids + ids.roll(1, dims=1)) % 20
        loss = F.cross_entropy(model(ids).flatten(0, 1), targets.flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 10 == 0:
            largest = max(log.norms, key=log.norms.get)
            print(f"{step} loss {loss.item():.4f} largest {largest} {log.norms[largest]:.4f}")
    log.close()


main()
