from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


@dataclass
class Attack:
    radius: float = 0.15
    step: float = 0.06
    steps: int = 3

    def __call__(self, model, images, labels):
        model.eval()
        model.requires_grad_(False)
        clean = F.softmax(model(images), dim=1)
        noise = torch.empty_like(images).uniform_(-self.radius, self.radius)
        for _ in range(self.steps):
            noise = noise.detach().requires_grad_()
            loss = F.kl_div(F.log_softmax(model(images + noise), 1), clean, reduction="sum")
            (gradient,) = torch.autograd.grad(loss, noise)
            noise = (noise + self.step * gradient.sign()).clamp(-self.radius, self.radius)
        model.requires_grad_(True)
        model.train()
        return (images + noise).detach()


class WideNet(nn.Module):
    def __init__(self, classes, width=16):
        super().__init__()
        self.stem = nn.Conv2d(1, width, 3, padding=1)
        self.norms = nn.ModuleList([nn.BatchNorm2d(width) for _ in range(3)])
        self.convs = nn.ModuleList([nn.Conv2d(width, width, 3, padding=1) for _ in range(2)])
        self.head = nn.Linear(width * 4, classes)

    def forward(self, x):
        x = self.stem(x)
        for norm, conv in zip(self.norms, self.convs, strict=False):
            x = x + conv(F.relu(norm(x)))
        x = F.relu(self.norms[-1](x))
        return self.head(F.adaptive_avg_pool2d(x, 2).flatten(1))


class Trades:
    def __init__(self, attack, weight=3.0):
        self.attack = attack
        self.weight = weight

    def __call__(self, model, images, labels):
        hard = self.attack(model, images, labels)
        logits, attacked = model(images), model(hard)
        natural = F.cross_entropy(logits, labels)
        robust = F.kl_div(
            F.log_softmax(attacked, 1), F.softmax(logits, 1), reduction="batchmean"
        )
        return natural + self.weight * robust


def draw(count):
    labels = torch.randint(0, 4, (count,))
    images = 0.2 * torch.randn(count, 1, 12, 12)
    for index, label in enumerate(labels.tolist()):
        images[index, 0, 6 * (label // 2) : 6 * (label // 2) + 6, 6 * (label % 2) :][:, :6] += 0.8
    return TensorDataset(images, labels)


def main():
    torch.manual_seed(52)
    model = WideNet(4)
    criterion = Trades(Attack())
    optimizer = torch.optim.SGD(
        model.parameters(), lr=0.05, momentum=0.9, nesterov=True, weight_decay=5e-4
    )
    scheduler = torch.optim.lr_scheduler.MultiStepLR(optimizer, [2], gamma=0.1)
    loader = DataLoader(draw(160), batch_size=16, shuffle=True)
    for epoch in range(3):
        for images, labels in loader:
            optimizer.zero_grad()
            loss = criterion(model, images, labels)
            loss.backward()
            optimizer.step()
        scheduler.step()
        print(epoch, loss.item())


if __name__ == "__main__":
    main()
