"""A character model whose matrices are orthogonalised and whose other weights go by AdamW."""

import torch
from torch import nn
from torch.nn import functional as F

TEXT = "the rain in spain stays mainly in the plain and the train is late again "


class Orthogonal(torch.optim.Optimizer):
    def __init__(self, params, lr=0.02, momentum=0.9):
        super().__init__(params, dict(lr=lr, momentum=momentum))

    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            for p in group["params"]:
                if p.grad is None:
                    continue
                buffer = self.state[p].setdefault("buffer", torch.zeros_like(p))
                buffer.mul_(group["momentum"]).add_(p.grad)
                x = buffer / (buffer.norm() + 1e-7)
                for _ in range(3):
                    x = 1.5 * x - 0.5 * x @ x.T @ x
                p.add_(x, alpha=-group["lr"])


class Chars(nn.Module):
    def __init__(self, size, width=32, context=6):
        super().__init__()
        self.embed = nn.Embedding(size, width)
        self.mix = nn.Linear(context * width, 64)
        self.deep = nn.Linear(64, 64)
        self.out = nn.Linear(64, size)

    def forward(self, x):
        h = torch.relu(self.mix(self.embed(x).flatten(1)))
        return self.out(h + torch.relu(self.deep(h)))


def main():
    torch.set_num_threads(1)
    torch.manual_seed(0)
    letters = sorted(set(TEXT))
    codes = torch.tensor([letters.index(c) for c in TEXT * 4])
    windows = codes.unfold(0, 7, 1)
    model = Chars(len(letters))
    hidden = [model.mix.weight, model.deep.weight]
    muon = Orthogonal(hidden, lr=0.02)
    adam = torch.optim.AdamW(model.parameters(), lr=3e-3)
    optimizers = [muon, adam]
    for step in range(60):
        batch = windows[torch.randint(len(windows), (32,))]
        loss = F.cross_entropy(model(batch[:, :6]), batch[:, 6])
        for optimizer in optimizers:
            optimizer.zero_grad()
        loss.backward()
        for optimizer in optimizers:
            optimizer.step()
        if step % 20 == 0:
            print(f"step {step} loss {loss.item():.3f}")


main()
