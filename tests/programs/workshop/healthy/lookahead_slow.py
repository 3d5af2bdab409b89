import torch
import torch.nn as nn
import torch.nn.functional as F


class Lookahead:
    def __init__(self, inner, k=5, alpha=0.5):
        self.inner, self.k, self.alpha, self.t = inner, k, alpha, 0
        self.slow = [[p.detach().clone() for p in g["params"]] for g in inner.param_groups]

    def zero_grad(self):
        self.inner.zero_grad()

    def step(self):
        self.inner.step()
        self.t += 1
        if self.t % self.k == 0:
            with torch.no_grad():
                for slow, group in zip(self.slow, self.inner.param_groups):
                    for s, p in zip(slow, group["params"]):
                        s.lerp_(p, self.alpha)
                        p.copy_(s)


def main():
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(8, 32), nn.SiLU(), nn.Linear(32, 4))
    opt = Lookahead(torch.optim.RAdam(net.parameters(), lr=1e-2))
    w = torch.randn(8, 4)
    for _ in range(80):
        x = torch.randn(64, 8)
        loss = F.cross_entropy(net(x), (x @ w).argmax(1))
        opt.zero_grad()
        loss.backward()
        opt.step()
    print(loss.item())


main()
