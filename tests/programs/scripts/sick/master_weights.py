import io

import torch
import torch.nn as nn
import torch.nn.functional as F


class MasterAdam:
    def __init__(self, params, lr):
        self.params = list(params)
        self.master = [p.detach().clone().float().requires_grad_(True) for p in self.params]
        self.inner = torch.optim.Adam(self.master, lr=lr)

    def zero_grad(self):
        for p in self.params:
            p.grad = None

    @torch.no_grad()
    def step(self):
        for m, p in zip(self.master, self.params):
            m.grad = None if p.grad is None else p.grad.float()
        self.inner.step()
        for m, p in zip(self.master, self.params):
            p.copy_(m)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(20, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU())
        self.head = nn.Linear(64, 4)

    def forward(self, x):
        return self.head(self.encoder(x))


def sample(n, rule):
    x = torch.randn(n, 20)
    return x, (x @ rule).argmax(1)


def pretrain(rule):
    net = Net()
    opt = torch.optim.Adam(net.parameters(), 5e-3)
    for _ in range(120):
        x, y = sample(64, rule)
        opt.zero_grad()
        F.cross_entropy(net(x), y).backward()
        opt.step()
    buffer = io.BytesIO()
    torch.save(net.state_dict(), buffer)
    buffer.seek(0)
    return buffer


def finetune(file, rule):
    model = Net().bfloat16()
    optimizer = MasterAdam(model.parameters(), lr=2e-4)
    model.load_state_dict(torch.load(file))
    for step in range(60):
        x, y = sample(64, rule)
        loss = F.cross_entropy(model(x.bfloat16()).float(), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 10 == 0:
            print(step, round(loss.item(), 3))


if __name__ == "__main__":
    torch.manual_seed(0)
    rule = torch.randn(20, 4)
    finetune(pretrain(rule), rule)
