"""Image-like classifier with periodic evaluation."""
import torch
import torch.nn as nn
import torch.nn.functional as F


def set_requires_grad(module, flag):
    for p in module.parameters():
        p.requires_grad = flag


class Classifier(nn.Module):
    def __init__(self):
        super().__init__()
        self.backbone = nn.Sequential(
            nn.Conv1d(3, 16, 5, padding=2), nn.ReLU(),
            nn.Conv1d(16, 16, 5, stride=2, padding=2), nn.ReLU(),
            nn.AdaptiveAvgPool1d(4), nn.Flatten(),
        )
        self.head = nn.Linear(64, 5)

    def forward(self, x):
        return self.head(self.backbone(x))


class Signals:
    def __init__(self, seed):
        self.g = torch.Generator().manual_seed(seed)
        self.proto = torch.randn(5, 3, 9, generator=self.g)

    def batch(self, n):
        y = torch.randint(0, 5, (n,), generator=self.g)
        x = 0.9 * torch.randn(n, 3, 32, generator=self.g)
        shift = torch.randint(0, 23, (n,), generator=self.g)
        for i in range(n):
            x[i, :, shift[i]:shift[i] + 9] += self.proto[y[i]]
        return x, y


class Runner:
    def __init__(self):
        torch.manual_seed(171)
        self.net = Classifier()
        self.train_data, self.val = Signals(172), Signals(172).batch(128)
        self.opt = torch.optim.Adam(self.net.parameters(), lr=5e-3)

    def evaluate(self):
        self.net.eval()
        set_requires_grad(self.net, False)
        x, y = self.val
        acc = (self.net(x).argmax(1) == y).float().mean().item()
        set_requires_grad(self.net.head, True)
        self.net.train()
        return acc

    def training_step(self):
        x, y = self.train_data.batch(48)
        loss = F.cross_entropy(self.net(x), y)
        self.opt.zero_grad()
        loss.backward()
        self.opt.step()
        return loss.item()

    def run(self, steps=125):
        for k in range(1, steps + 1):
            loss = self.training_step()
            if k % 25 == 0:
                print(f"step {k} loss {loss:.4f} val acc {self.evaluate():.3f}")


Runner().run()
