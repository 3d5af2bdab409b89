import collections

import torch
import torch.nn as nn
import torch.nn.functional as F


class Meter:
    def __init__(self):
        self.sums = collections.defaultdict(float)
        self.counts = collections.Counter()

    def add(self, **values):
        for name, value in values.items():
            self.sums[name] += value
            self.counts[name] += 1

    def mean(self, name):
        return float(self.sums[name]) / self.counts[name]


class BoxNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Sequential(nn.Linear(30, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU())
        self.cls = nn.Linear(64, 3)
        self.box = nn.Linear(64, 4)

    def forward(self, x):
        h = self.stem(x)
        return self.cls(h), self.box(h)


def synth(g, w, v):
    x = torch.randn(64, 30, generator=g)
    return x, (x @ w).argmax(1), torch.tanh(x @ v)


def train_epoch(net, opt, meter, data, steps):
    for _ in range(steps):
        x, label, box = data()
        logits, pred = net(x)
        cls_loss = F.cross_entropy(logits, label)
        box_loss = F.smooth_l1_loss(pred, box)
        loss = cls_loss + 2.0 * box_loss
        opt.zero_grad()
        loss.backward()
        opt.step()
        meter.add(loss=loss.item(), cls=cls_loss.item(), box=box_loss.item())


if __name__ == "__main__":
    torch.manual_seed(201)
    g = torch.Generator().manual_seed(202)
    w, v = torch.randn(30, 3, generator=g), 0.3 * torch.randn(30, 4, generator=g)
    net = BoxNet()
    opt = torch.optim.Adam(net.parameters(), lr=3e-3)
    meter = Meter()
    for epoch in range(5):
        train_epoch(net, opt, meter, lambda: synth(g, w, v), 30)
        print(epoch, *(f"{k} {meter.mean(k):.4f}" for k in ("loss", "cls", "box")))
