import torch
from torch import nn


@torch.no_grad()
def validate(model, x, y):
    model.eval()
    return (model(x).argmax(1) == y).float().mean().item()


torch.manual_seed(21)
x, x_val = torch.randn(200, 12), torch.randn(80, 12)
label = lambda v: (v[:, 0] * v[:, 1] > 0).long()
model = nn.Sequential(nn.Linear(12, 64), nn.BatchNorm1d(64), nn.ReLU(), nn.Dropout(0.3), nn.Linear(64, 2))
optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
model.train()
for epoch in range(10):
    for rows in torch.randperm(200).split(40):
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(x[rows]), label(x[rows]))
        loss.backward()
        optimizer.step()
    accuracy = validate(model, x_val, label(x_val))
    print(f"epoch {epoch} loss {loss.item():.3f} acc {accuracy:.2f}")
