import torch
import torch.nn.functional as F
from torch import nn


class Top2MoE(nn.Module):
    def __init__(self, width=16, experts=8):
        super().__init__()
        self.gate = nn.Linear(width, experts, bias=False)
        self.experts = nn.ModuleList(
            nn.Sequential(nn.Linear(width, 2 * width), nn.SiLU(), nn.Linear(2 * width, width)) for _ in range(experts)
        )

    def forward(self, x):
        probs = self.gate(x).softmax(-1)
        weight, index = probs.topk(2, dim=-1)
        weight = weight / weight.sum(-1, keepdim=True)
        out = torch.zeros_like(x)
        for e, expert in enumerate(self.experts):
            rows, slot = torch.where(index == e)
            if len(rows):
                out = out.index_add(0, rows, weight[rows, slot, None] * expert(x[rows]))
        load = F.one_hot(index[:, 0], len(self.experts)).float().mean(0)
        return out, len(self.experts) * (load * probs.mean(0)).sum()


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.inp, self.moe, self.out = nn.Linear(6, 16), Top2MoE(), nn.Linear(16, 1)

    def forward(self, x):
        h = self.inp(x)
        y, balance = self.moe(h)
        return self.out(h + y), balance


def main():
    torch.manual_seed(8)
    model = Net()
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    for step in range(100):
        x = torch.randn(4, 6)
        y = torch.where(x[:, :1] > 0, x[:, 1:2], x[:, 2:3].sin())
        pred, balance = model(x)
        loss = F.mse_loss(pred, y) + 0.01 * balance
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        if step % 25 == 0:
            print(step, loss.item())


if __name__ == "__main__":
    main()
