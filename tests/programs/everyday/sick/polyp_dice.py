import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset


class Polyps(Dataset):
    def __init__(self, n, size=20, seed=0):
        g = torch.Generator().manual_seed(seed)
        self.images = torch.randn(n, 3, size, size, generator=g) * 0.5
        self.masks = torch.zeros(n, 1, size, size)
        for i in range(n):
            r, c = torch.randint(3, size - 8, (2,), generator=g).tolist()
            self.masks[i, :, r : r + 5, c : c + 5] = 1
        self.images[:, :1] += self.masks

    def __len__(self):
        return len(self.images)

    def __getitem__(self, i):
        return self.images[i], self.masks[i]


class DiceBCELoss(nn.Module):
    def __init__(self, smooth=1.0):
        super().__init__()
        self.smooth = smooth

    def forward(self, logits, targets):
        inputs = torch.sigmoid(logits)
        inputs = (inputs > 0.5).float().flatten(1)
        targets_flat = targets.flatten(1)
        intersection = (inputs * targets_flat).sum(1)
        dice = (2 * intersection + self.smooth) / (inputs.sum(1) + targets_flat.sum(1) + self.smooth)
        bce = F.binary_cross_entropy_with_logits(logits, targets)
        return bce + (1 - dice.mean())


def build_model(width=12):
    return nn.Sequential(
        nn.Conv2d(3, width, 3, padding=1), nn.BatchNorm2d(width), nn.ReLU(),
        nn.Conv2d(width, width, 3, padding=1), nn.BatchNorm2d(width), nn.ReLU(),
        nn.Conv2d(width, 1, 1),
    )


def main():
    torch.manual_seed(90)
    loader = DataLoader(Polyps(160), batch_size=16, shuffle=True)
    model, criterion = build_model(), DiceBCELoss()
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    for epoch in range(5):
        for image, mask in loader:
            optimizer.zero_grad()
            loss = criterion(model(image), mask)
            loss.backward()
            optimizer.step()
        print(f"epoch {epoch} loss {loss.item():.4f}")


if __name__ == "__main__":
    main()
