import torch
import torch.nn.functional as F
from torch import nn


class Expert(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.up = nn.Linear(width, 2 * width)
        self.down = nn.Linear(2 * width, width)

    def forward(self, x):
        return self.down(F.gelu(self.up(x)))


class MoELayer(nn.Module):
    def __init__(self, width, experts=4):
        super().__init__()
        self.router = nn.Linear(width, experts)
        self.experts = nn.ModuleList(Expert(width) for _ in range(experts))

    def forward(self, x):
        probs = F.softmax(self.router(x), dim=-1)
        weight, choice = probs.max(dim=-1)
        out = torch.zeros_like(x)
        for i, expert in enumerate(self.experts):
            picked = choice == i
            if picked.any():
                out[picked] = weight[picked].unsqueeze(-1) * expert(x[picked])
        return out


class Model(nn.Module):
    def __init__(self, width=24):
        super().__init__()
        self.inp = nn.Linear(8, width)
        self.norm = nn.LayerNorm(width)
        self.moe = MoELayer(width)
        self.out = nn.Linear(width, 1)

    def forward(self, x):
        h = self.inp(x)
        return self.out(h + self.moe(self.norm(h)))


def main():
    torch.manual_seed(29)
    model = Model()
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3, weight_decay=0.0)
    for step in range(80):
        x = torch.randn(128, 8)
        y = torch.where(x[:, :1] > 0, x[:, 1:2] * 2, -x[:, 2:3]) + 0.5 * x[:, 3:4].abs()
        loss = F.mse_loss(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 20 == 0:
            print(step, loss.item())


if __name__ == "__main__":
    main()
