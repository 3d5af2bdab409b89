"""A small vision transformer on stripes."""

import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(88)


class ViT(nn.Module):
    def __init__(self, size=16, patch=4, dim=32, depth=2, classes=4):
        super().__init__()
        self.patch = nn.Conv2d(1, dim, patch, stride=patch)
        count = (size // patch) ** 2
        self.pos = (torch.randn(1, count, dim) * 0.02).requires_grad_()
        layer = nn.TransformerEncoderLayer(dim, 4, 64, dropout=0.0, batch_first=True, norm_first=True)
        self.blocks = nn.TransformerEncoder(layer, depth, enable_nested_tensor=False)
        self.head = nn.Linear(dim, classes)

    def forward(self, x):
        x = self.patch(x).flatten(2).transpose(1, 2) + self.pos
        return self.head(self.blocks(x).mean(1))


def quadrants(n):
    """The class is the quadrant with the bright spot."""
    label = torch.randint(4, (n,))
    x = 0.3 * torch.randn(n, 1, 16, 16)
    for i, k in enumerate(label.tolist()):
        r, c = 8 * (k // 2), 8 * (k % 2)
        dr, dc = torch.randint(0, 5, (2,)).tolist()
        x[i, 0, r + dr : r + dr + 4, c + dc : c + dc + 4] += 1.5
    return x, label


model = ViT()
optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
for step in range(100):
    x, label = quadrants(32)
    logits = model(x)
    loss = F.cross_entropy(logits, label)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 20 == 0:
        print(f"step {step} loss {loss.item():.3f} acc {(logits.argmax(1) == label).float().mean().item():.2f}")
