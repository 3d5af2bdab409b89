import math

import torch
from torch import nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, TensorDataset


class CosineLinear(nn.Module):
    def __init__(self, features, classes, scale=12.0):
        super().__init__()
        self.weight = nn.Parameter(torch.empty(classes, features))
        self.scale = scale
        nn.init.kaiming_uniform_(self.weight, a=math.sqrt(5))

    def forward(self, x):
        self.weight = nn.Parameter(F.normalize(self.weight, dim=1))
        return self.scale * F.linear(F.normalize(x, dim=1), self.weight)


class ArcMargin(nn.Module):
    def __init__(self, scale, margin=0.1):
        super().__init__()
        self.scale, self.margin = scale, margin

    def forward(self, logits, labels):
        shift = F.one_hot(labels, logits.size(1)) * self.margin * self.scale
        return F.cross_entropy(logits - shift, labels)


class FaceNet(nn.Module):
    def __init__(self, features, people, width=48):
        super().__init__()
        self.backbone = nn.Sequential(
            nn.Linear(features, width), nn.BatchNorm1d(width), nn.ReLU(), nn.Dropout(0.1), nn.Linear(width, 16)
        )
        self.classifier = CosineLinear(16, people)

    def forward(self, x):
        return self.classifier(self.backbone(x))


def main():
    torch.manual_seed(32)
    people = 8
    centres = torch.randn(people, 20)
    labels = torch.randint(0, people, (400,))
    data = TensorDataset(centres[labels] + 0.7 * torch.randn(400, 20), labels)
    loader = DataLoader(data, batch_size=40, shuffle=True)
    model = FaceNet(20, people)
    criterion = ArcMargin(model.classifier.scale)
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    for epoch in range(4):
        hits = 0
        for x, y in loader:
            logits = model(x)
            loss = criterion(logits, y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            hits += (logits.argmax(1) == y).sum().item()
        print(f"epoch {epoch + 1}: {hits / len(data):.3f}")


if __name__ == "__main__":
    main()
