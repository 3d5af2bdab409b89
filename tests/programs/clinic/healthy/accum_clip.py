import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class ConvNet(nn.Module):
    def __init__(self, classes=4):
        super().__init__()
        self.stem = nn.Conv2d(1, 12, 3, padding=1)
        self.stages = nn.ModuleList()
        for wide in (12, 24):
            self.stages.append(
                nn.Sequential(
                    nn.Conv2d(wide, wide * 2, 3, stride=2, padding=1),
                    nn.GroupNorm(4, wide * 2),
                    nn.ReLU(),
                )
            )
        self.head = nn.Linear(48, classes)

    def forward(self, x):
        x = F.relu(self.stem(x))
        for stage in self.stages:
            x = stage(x)
        return self.head(x.mean(dim=(2, 3)))


def patterns(n=512):
    generator = torch.Generator().manual_seed(7)
    labels = torch.randint(0, 4, (n,), generator=generator)
    grid = torch.arange(12) / 2
    waves = torch.stack([
        torch.sin(grid)[None].expand(12, 12), torch.sin(grid)[:, None].expand(12, 12),
        torch.sin(grid[None] + grid[:, None]), torch.sin(grid[None] - grid[:, None]),
    ])
    images = waves[labels] + 0.5 * torch.randn(n, 12, 12, generator=generator)
    return TensorDataset(images[:, None], labels)


class Trainer:
    def __init__(self, model, lr, micro_batches, max_norm):
        self.model = model
        self.micro_batches = micro_batches
        self.max_norm = max_norm
        self.optimizer = torch.optim.SGD(model.parameters(), lr=lr, momentum=0.9, nesterov=True)

    def step(self, images, labels):
        self.optimizer.zero_grad()
        total = 0.0
        for x, y in zip(images.chunk(self.micro_batches), labels.chunk(self.micro_batches)):
            loss = F.cross_entropy(self.model(x), y) / self.micro_batches
            loss.backward()
            total += loss.item()
        nn.utils.clip_grad_norm_(self.model.parameters(), self.max_norm)
        self.optimizer.step()
        return total


def main():
    torch.manual_seed(18)
    loader = DataLoader(patterns(), batch_size=64, shuffle=True)
    trainer = Trainer(ConvNet(), lr=0.05, micro_batches=4, max_norm=0.2)
    for epoch in range(4):
        for images, labels in loader:
            loss = trainer.step(images, labels)
        print(f"epoch {epoch}: {loss:.3f}")


if __name__ == "__main__":
    main()
