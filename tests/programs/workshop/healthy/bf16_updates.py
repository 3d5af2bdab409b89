import torch
import torch.nn as nn
import torch.nn.functional as F


class FeedForward(nn.Module):
    def __init__(self, d, h):
        super().__init__()
        self.w1, self.w2, self.w3 = nn.Linear(d, h, bias=False), nn.Linear(h, d, bias=False), nn.Linear(d, h, bias=False)

    def forward(self, x):
        return self.w2(F.silu(self.w1(x)) * self.w3(x))


class Net(nn.Module):
    def __init__(self, d=32, n=2):
        super().__init__()
        self.inp = nn.Linear(8, d)
        self.ffs = nn.ModuleList([FeedForward(d, 64) for _ in range(n)])
        self.out = nn.Linear(d, 1)

    def forward(self, x):
        x = self.inp(x)
        for ff in self.ffs:
            x = x + ff(F.layer_norm(x, x.shape[-1:]))
        return self.out(x)


def main():
    torch.manual_seed(0)
    dtype = torch.bfloat16
    model = Net()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5, weight_decay=0.0)
    start = [p.detach().clone() for p in model.parameters()]
    for step in range(60):
        x = torch.randn(64, 8)
        y = (x[:, :1] - x[:, 1:2]).tanh()
        with torch.autocast("cpu", dtype=dtype):
            pred = model(x)
        loss = F.mse_loss(pred.float(), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    still = sum((a == b).sum().item() for a, b in zip(start, model.parameters()))
    total = sum(p.numel() for p in model.parameters())
    print(f"loss {loss.item():.3f}, unchanged {still / total:.1%}")


main()
