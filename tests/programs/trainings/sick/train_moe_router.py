"""Switch-style mixture of experts on piecewise targets."""
import torch
import torch.nn as nn
import torch.nn.functional as F


class Expert(nn.Sequential):
    def __init__(self, d):
        super().__init__(nn.Linear(d, 2 * d), nn.GELU(), nn.Linear(2 * d, d))


class SwitchLayer(nn.Module):
    def __init__(self, d, n_experts):
        super().__init__()
        self.router = nn.Linear(d, n_experts, bias=False)
        self.experts = nn.ModuleList(Expert(d) for _ in range(n_experts))

    def forward(self, x):
        probs = self.router(x).softmax(dim=-1)
        gate, index = probs.max(dim=-1)
        out = torch.zeros_like(x)
        for e, expert in enumerate(self.experts):
            rows = (index == e).nonzero(as_tuple=True)[0]
            if len(rows):
                out = out.index_add(0, rows, gate[rows, None] * expert(x[rows]))
        return x + out, self.balance(probs, index)

    def balance(self, probs, index):
        n = len(self.experts)
        load = F.one_hot(index, n).float().mean(dim=0)
        importance = F.one_hot(probs.argmax(dim=-1), n).float().mean(dim=0)
        return n * (load * importance).sum()


class Net(nn.Module):
    def __init__(self, d=16, n_experts=4):
        super().__init__()
        self.inp = nn.Linear(6, d)
        self.moe = SwitchLayer(d, n_experts)
        self.out = nn.Linear(d, 1)

    def forward(self, x):
        h, aux = self.moe(torch.tanh(self.inp(x)))
        return self.out(h), aux


def target(x):
    quadrant = (x[:, 0] > 0).float() * 2 + (x[:, 1] > 0).float()
    return (torch.sin(2 * x[:, 2] + quadrant) + 0.5 * quadrant)[:, None]


def main():
    torch.manual_seed(151)
    g = torch.Generator().manual_seed(152)
    net = Net()
    opt = torch.optim.AdamW(net.parameters(), lr=1e-2, weight_decay=0.0)
    for step in range(120):
        x = torch.randn(256, 6, generator=g)
        pred, aux = net(x)
        task = F.mse_loss(pred, target(x))
        loss = task + 0.05 * aux
        opt.zero_grad()
        loss.backward()
        opt.step()
        if step % 20 == 0:
            print(f"step {step} task {task.item():.4f} balance {aux.item():.3f}")


main()
