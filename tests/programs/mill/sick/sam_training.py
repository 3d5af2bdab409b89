import argparse

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class SAM(torch.optim.Optimizer):
    def __init__(self, params, base, rho=0.05, adaptive=False, **kwargs):
        super().__init__(params, dict(rho=rho, adaptive=adaptive, **kwargs))
        self.base = base(self.param_groups, **kwargs)
        self.param_groups = self.base.param_groups

    def _norm(self):
        norms = [
            ((p.abs() if group["adaptive"] else 1.0) * p.grad).norm()
            for group in self.param_groups
            for p in group["params"]
            if p.grad is not None
        ]
        return torch.stack(norms).norm()

    @torch.no_grad()
    def ascend(self, zero_grad=False):
        norm = self._norm()
        for group in self.param_groups:
            scale = group["rho"] / (norm + 1e-12)
            for p in group["params"]:
                if p.grad is None:
                    continue
                self.state[p]["kept"] = p.detach().clone()
                p.add_((p.pow(2) if group["adaptive"] else 1.0) * p.grad * scale)
        if zero_grad:
            self.zero_grad()

    @torch.no_grad()
    def descend(self, zero_grad=False):
        for group in self.param_groups:
            for p in group["params"]:
                if p.grad is not None:
                    p.copy_(self.state[p]["kept"])
        self.base.step()
        if zero_grad:
            self.zero_grad()

    def step(self, closure=None):
        raise NotImplementedError("call ascend and descend")


class MixerBlock(nn.Module):
    def __init__(self, tokens, width):
        super().__init__()
        self.token_norm, self.channel_norm = nn.LayerNorm(width), nn.LayerNorm(width)
        self.token = nn.Sequential(nn.Linear(tokens, tokens), nn.GELU(), nn.Linear(tokens, tokens))
        self.channel = nn.Sequential(nn.Linear(width, width), nn.GELU(), nn.Linear(width, width))

    def forward(self, x):
        x = x + self.token(self.token_norm(x).transpose(1, 2)).transpose(1, 2)
        return x + self.channel(self.channel_norm(x))


class Mixer(nn.Module):
    def __init__(self, classes, width=32, tokens=16, depth=2):
        super().__init__()
        self.patch = nn.Conv2d(1, width, 4, 4)
        self.blocks = nn.Sequential(*[MixerBlock(tokens, width) for _ in range(depth)])
        self.head = nn.Linear(width, classes)

    def forward(self, x):
        tokens = self.patch(x).flatten(2).transpose(1, 2)
        return self.head(self.blocks(tokens).mean(1))


def train_batch(model, optimizer, criterion, images, labels):
    loss = criterion(model(images), labels)
    loss.backward()
    optimizer.ascend()
    criterion(model(images), labels).backward()
    optimizer.descend(zero_grad=True)
    return loss.item()


def draw(count, classes):
    labels = torch.randint(0, classes, (count,))
    images = torch.randn(count, 1, 16, 16) * 0.6
    for index, label in enumerate(labels.tolist()):
        images[index, 0, label * 2 : label * 2 + 3, label : label + 8] += 1.2
    return TensorDataset(images, labels)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--rho", type=float, default=0.05)
    parser.add_argument("--epochs", type=int, default=2)
    args = parser.parse_args()
    torch.manual_seed(14)
    model = Mixer(6)
    optimizer = SAM(model.parameters(), torch.optim.SGD, rho=args.rho, lr=0.05, momentum=0.9)
    loader = DataLoader(draw(240, 6), batch_size=16, shuffle=True)
    criterion = nn.CrossEntropyLoss(label_smoothing=0.1)
    for epoch in range(args.epochs):
        losses = [train_batch(model, optimizer, criterion, *batch) for batch in loader]
        print(epoch, sum(losses) / len(losses))


if __name__ == "__main__":
    main()
