from functools import partial

import torch
import torch.nn as nn
from torch.utils.data import DataLoader, TensorDataset


def conv(i, o, stride=1):
    return nn.Sequential(nn.Conv2d(i, o, 3, stride, 1, bias=False), nn.BatchNorm2d(o), nn.SiLU())


def model():
    return nn.Sequential(conv(3, 8), conv(8, 16, 2), conv(16, 16, 2), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(16, 6))


def dataset(n=480):
    label = torch.randint(0, 6, (n,))
    palette = torch.rand(6, 3, 1, 1)
    return TensorDataset(palette[label] + 0.3 * torch.randn(n, 3, 8, 8), label)


RECIPES = {
    "onecycle": lambda opt, total: torch.optim.lr_scheduler.OneCycleLR(opt, max_lr=0.02, total_steps=total, div_factor=1e4),
    "none": lambda opt, total: None,
}


def train(recipe="onecycle", epochs=6):
    torch.manual_seed(24)
    net = model()
    loader = DataLoader(dataset(), batch_size=24, shuffle=True)
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-3, weight_decay=0.02)
    scheduler = RECIPES[recipe](optimizer, epochs * len(loader))
    loss_fn = partial(nn.functional.cross_entropy, label_smoothing=0.05)
    for epoch in range(epochs):
        running = 0.0
        for images, labels in loader:
            optimizer.zero_grad()
            loss = loss_fn(net(images), labels)
            loss.backward()
            optimizer.step()
            running += loss.item()
        scheduler.step()
        print(f"{epoch} {running / len(loader):.4f} lr {optimizer.param_groups[0]['lr']:.2e}")


if __name__ == "__main__":
    train()
