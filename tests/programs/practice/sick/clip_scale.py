import math

import torch
import torch.nn.functional as F
from torch import nn


class ImageTower(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.conv = nn.Conv2d(1, 16, 3, stride=2, padding=1)
        self.fc = nn.Linear(16 * 16, width)

    def forward(self, x):
        return self.fc(F.relu(self.conv(x)).flatten(1))


class TextTower(nn.Module):
    def __init__(self, width, vocab=40):
        super().__init__()
        self.embed = nn.Embedding(vocab, width)
        self.proj = nn.Linear(width, width)

    def forward(self, tokens):
        return self.proj(self.embed(tokens).mean(1))


class CLIP(nn.Module):
    def __init__(self, width=24):
        super().__init__()
        self.image, self.text = ImageTower(width), TextTower(width)
        self.logit_scale = nn.Parameter(torch.tensor(math.log(1 / 0.07)))

    def forward(self, images, tokens):
        image = F.normalize(self.image(images), dim=-1)
        text = F.normalize(self.text(tokens), dim=-1)
        scale = self.logit_scale.exp().item()
        return scale * image @ text.T


def contrastive(logits):
    target = torch.arange(len(logits))
    return (F.cross_entropy(logits, target) + F.cross_entropy(logits.T, target)) / 2


def pairs(n):
    tokens = torch.randint(0, 40, (n, 4))
    images = torch.zeros(n, 1, 8, 8)
    images.view(n, -1).scatter_(1, tokens, 1.0)
    return images + 0.1 * torch.randn_like(images), tokens


def main():
    torch.manual_seed(0)
    model = CLIP()
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3, weight_decay=0.0)
    for step in range(80):
        loss = contrastive(model(*pairs(32)))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        with torch.no_grad():
            model.logit_scale.clamp_(0, math.log(100))
        if step % 20 == 0:
            print(step, loss.item(), model.logit_scale.item())


if __name__ == "__main__":
    main()
