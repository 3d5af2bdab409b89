import torch
import torch.nn.functional as F
from torch import nn


class AdaLNBlock(nn.Module):
    """A residual block whose shift, scale and gate come from the condition; they start at zero."""

    def __init__(self, width, condition):
        super().__init__()
        self.norm = nn.LayerNorm(width, elementwise_affine=False)
        self.mlp = nn.Sequential(nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, width))
        self.modulation = nn.Sequential(nn.SiLU(), nn.Linear(condition, 3 * width))
        nn.init.zeros_(self.modulation[1].weight)
        nn.init.zeros_(self.modulation[1].bias)

    def forward(self, x, c):
        shift, scale, gate = self.modulation(c).chunk(3, -1)
        return x + gate * self.mlp(self.norm(x) * (1 + scale) + shift)


class Net(nn.Module):
    def __init__(self, width=24, depth=3):
        super().__init__()
        self.inp, self.cond = nn.Linear(4, width), nn.Embedding(5, width)
        self.blocks = nn.ModuleList(AdaLNBlock(width, width) for _ in range(depth))
        self.out = nn.Linear(width, 4)
        nn.init.zeros_(self.out.weight)
        nn.init.zeros_(self.out.bias)

    def forward(self, x, label):
        h, c = self.inp(x), self.cond(label)
        for block in self.blocks:
            h = block(h, c)
        return self.out(h)


def main():
    torch.manual_seed(18)
    model = Net()
    optimizer = torch.optim.AdamW(model.parameters(), lr=4e-3, weight_decay=0.0)
    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: min(1.0, step / 10))
    rotation = torch.randn(5, 4, 4)
    for step in range(100):
        x, label = torch.randn(64, 4), torch.randint(0, 5, (64,))
        y = torch.einsum("bi,bij->bj", x, rotation[label])
        loss = F.mse_loss(model(x, label), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        scheduler.step()
        if step % 25 == 0:
            print(step, loss.item())


if __name__ == "__main__":
    main()
