"""Re-identification with a softmax loss and a center loss."""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

IDS, D_IN, FEAT = 8, 24, 12


class CenterLoss(nn.Module):
    def __init__(self, num_classes, feat_dim):
        super().__init__()
        self.centers = nn.Parameter(torch.randn(num_classes, feat_dim))

    def forward(self, x, labels):
        return (x - self.centers[labels]).pow(2).sum(dim=1).clamp(1e-12, 1e12).mean()


class Backbone(nn.Module):
    def __init__(self):
        super().__init__()
        self.base = nn.Sequential(nn.Linear(D_IN, 48), nn.ReLU(), nn.Linear(48, FEAT))
        self.bottleneck = nn.BatchNorm1d(FEAT)
        self.classifier = nn.Linear(FEAT, IDS, bias=False)

    def forward(self, x):
        feat = self.base(x)
        return self.classifier(self.bottleneck(feat)), feat


def build_optimizers(model, center_criterion):
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3, weight_decay=5e-4)
    return [optimizer]


def main():
    torch.manual_seed(10)
    prototypes = torch.randn(IDS, D_IN)
    labels = torch.randint(IDS, (256,))
    images = prototypes[labels] + 0.7 * torch.randn(256, D_IN)
    loader = DataLoader(TensorDataset(images, labels), batch_size=32, shuffle=True)

    model, xent, center = Backbone(), nn.CrossEntropyLoss(label_smoothing=0.1), CenterLoss(IDS, FEAT)
    optimizers = build_optimizers(model, center)
    for epoch in range(5):
        for x, y in loader:
            score, feat = model(x)
            loss = xent(score, y) + 0.05 * center(feat, y)
            for opt in optimizers:
                opt.zero_grad()
            loss.backward()
            for opt in optimizers:
                opt.step()
        print(f"epoch {epoch}: {loss.item():.4f}")


if __name__ == "__main__":
    main()
