import argparse

import torch
from torch import nn


class PatchEmbed(nn.Module):
    def __init__(self, patch, width):
        super().__init__()
        self.proj = nn.Conv2d(3, width, patch, stride=patch)

    def forward(self, x):
        return self.proj(x).flatten(2).transpose(1, 2)


class ViT(nn.Module):
    def __init__(self, size=16, patch=4, width=32, depth=2, heads=4, classes=5):
        super().__init__()
        self.patch_embed = PatchEmbed(patch, width)
        tokens = (size // patch) ** 2
        self.cls_token = nn.Parameter(0.02 * torch.randn(1, 1, width))
        self.pos_embed = nn.Parameter(0.02 * torch.randn(1, tokens + 1, width))
        layer = nn.TransformerEncoderLayer(
            width, heads, 2 * width, dropout=0.0, activation="gelu", batch_first=True, norm_first=True
        )
        self.encoder = nn.TransformerEncoder(layer, depth, enable_nested_tensor=False)
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, classes)

    def forward(self, images):
        x = self.patch_embed(images)
        cls = self.cls_token.expand(x.size(0), -1, -1)
        x = torch.cat([cls, x], 1) + self.pos_embed
        return self.head(self.norm(self.encoder(x))[:, 0])


def synthetic(n):
    labels = torch.randint(0, 5, (n,))
    images = 0.3 * torch.randn(n, 3, 16, 16)
    images[torch.arange(n), labels % 3] += 0.5
    images[labels >= 3, :, :8] -= 0.7
    return images, labels


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=60)
    args = parser.parse_args()
    torch.manual_seed(0)
    model = ViT()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=0.05)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, args.steps)
    criterion = nn.CrossEntropyLoss(label_smoothing=0.1)
    for step in range(args.steps):
        images, labels = synthetic(32)
        loss = criterion(model(images), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        scheduler.step()
        if step % 20 == 0:
            print(step, loss.item())


if __name__ == "__main__":
    main()
