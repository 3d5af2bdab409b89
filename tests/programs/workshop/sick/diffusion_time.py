import torch
import torch.nn as nn
import torch.nn.functional as F

T = 200


def linear_schedule():
    beta = torch.linspace(1e-4, 0.04, T)
    return torch.cumprod(1 - beta, 0)


class TimeMLP(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.fc1 = nn.Linear(1, dim)
        self.fc2 = nn.Linear(dim, dim)

    def forward(self, t):
        t = (t // T).float().unsqueeze(-1)
        return self.fc2(F.silu(self.fc1(t)))


class EpsNet(nn.Module):
    def __init__(self, data=4, dim=64):
        super().__init__()
        self.time = TimeMLP(dim)
        self.stem = nn.Linear(data, dim)
        self.mid = nn.Linear(dim, dim)
        self.out = nn.Linear(dim, data)

    def forward(self, x, t):
        h = F.silu(self.stem(x) + self.time(t))
        h = h + F.silu(self.mid(h))
        return self.out(h)


def main():
    torch.manual_seed(0)
    abar = linear_schedule()
    net = EpsNet()
    optim = torch.optim.AdamW(net.parameters(), lr=2e-3)
    start = net.time.fc1.weight.detach().clone()
    for step in range(100):
        x0 = torch.randn(128, 4).sign() + 0.05 * torch.randn(128, 4)
        t = torch.randint(0, T, (128,))
        eps = torch.randn_like(x0)
        a = abar[t].unsqueeze(1)
        loss = F.mse_loss(net(a.sqrt() * x0 + (1 - a).sqrt() * eps, t), eps)
        optim.zero_grad()
        loss.backward()
        optim.step()
        if step % 25 == 0:
            print(f"{step}: {loss.item():.4f}")
    print("moved", (net.time.fc1.weight - start).abs().max().item())


if __name__ == "__main__":
    main()
