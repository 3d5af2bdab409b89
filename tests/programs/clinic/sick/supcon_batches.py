import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Encoder(nn.Module):
    def __init__(self, inputs=24, width=64, projected=16):
        super().__init__()
        self.body = nn.Sequential(
            nn.Linear(inputs, width), nn.LayerNorm(width), nn.GELU(),
            nn.Linear(width, width), nn.LayerNorm(width), nn.GELU(),
        )
        self.project = nn.Linear(width, projected)

    def forward(self, x):
        return F.normalize(self.project(self.body(x)), dim=1)


class SupervisedContrast(nn.Module):
    def __init__(self, temperature=0.2):
        super().__init__()
        self.temperature = temperature

    def forward(self, z, labels):
        itself = torch.eye(len(z), dtype=torch.bool)
        positive = (labels[:, None] == labels[None]) & ~itself
        similarity = (z @ z.T / self.temperature).masked_fill(itself, -1e9)
        log_prob = similarity - similarity.logsumexp(dim=1, keepdim=True)
        count = positive.sum(dim=1)
        mean_log_prob = (positive * log_prob).sum(dim=1) / count
        return -mean_log_prob.mean()


def dataset(classes=12, n=960):
    generator = torch.Generator().manual_seed(4)
    frequency = torch.ones(classes)
    frequency[-1] = 0.12
    labels = frequency.multinomial(n, replacement=True, generator=generator)
    centres = torch.randn(classes, 24, generator=generator)
    return TensorDataset(centres[labels] + 0.8 * torch.randn(n, 24, generator=generator), labels)


def main():
    torch.manual_seed(15)
    loader = DataLoader(dataset(), batch_size=96, shuffle=True, drop_last=True)
    model, criterion = Encoder(), SupervisedContrast()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=1e-4)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=6 * len(loader))
    for epoch in range(6):
        total = 0.0
        for x, labels in loader:
            loss = criterion(model(x + 0.1 * torch.randn_like(x)), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            scheduler.step()
            total += loss.item()
        print(f"epoch {epoch}: {total / len(loader):.3f}")


if __name__ == "__main__":
    main()
