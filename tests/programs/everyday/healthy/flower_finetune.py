"""Transfer learning: keep the backbone, train a new head."""

import torch
import torch.nn as nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(8)


def conv_block(inputs, outputs):
    return nn.Sequential(
        nn.Conv2d(inputs, outputs, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)
    )


class Backbone(nn.Module):
    def __init__(self):
        super().__init__()
        self.features = nn.Sequential(conv_block(3, 16), conv_block(16, 32))
        self.pool = nn.AdaptiveAvgPool2d(2)
        self.fc = nn.Linear(128, 20)

    def forward(self, x):
        return self.fc(self.pool(self.features(x)).flatten(1))


def load_pretrained():
    model = Backbone()
    state = {k: v.clone() for k, v in model.state_dict().items()}
    model.load_state_dict(state)
    return model


def images(n, classes=5):
    y = torch.randint(classes, (n,))
    tint = torch.linspace(-1, 1, classes)[y].view(-1, 1, 1, 1)
    x = torch.randn(n, 3, 16, 16)
    x[:, 0:1] += tint
    x[:, 1:2] -= tint**2
    return x, y


model = load_pretrained()
for param in model.features.parameters():
    param.requires_grad = False
model.fc = nn.Linear(128, 5)

optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
criterion = nn.CrossEntropyLoss()
loader = DataLoader(TensorDataset(*images(480)), batch_size=32, shuffle=True)
for epoch in range(4):
    hits = 0
    for x, y in loader:
        optimizer.zero_grad()
        out = model(x)
        loss = criterion(out, y)
        loss.backward()
        optimizer.step()
        hits += (out.argmax(1) == y).sum().item()
    print(f"epoch {epoch} accuracy {hits / 480:.3f}")
