import torch
import torch.nn as nn
import torch.nn.functional as F


class FocalLoss(nn.Module):
    def __init__(self, gamma=2.0, alpha=0.25):
        super().__init__()
        self.gamma, self.alpha = gamma, alpha

    def forward(self, scores, target):
        cross_entropy = F.binary_cross_entropy_with_logits(scores, target, reduction="none")
        right = torch.exp(-cross_entropy)
        balance = self.alpha * target + (1 - self.alpha) * (1 - target)
        return (balance * (1 - right) ** self.gamma * cross_entropy).sum(1).mean()


class ConvBlock(nn.Sequential):
    def __init__(self, inputs, outputs):
        super().__init__(
            nn.Conv2d(inputs, outputs, 3, padding=1, bias=False), nn.BatchNorm2d(outputs), nn.ReLU(), nn.AvgPool2d(2)
        )


class AudioTagger(nn.Module):
    def __init__(self, bands=16, tags=10):
        super().__init__()
        self.normalize = nn.BatchNorm1d(bands)
        self.blocks = nn.Sequential(ConvBlock(1, 12), ConvBlock(12, 24))
        self.attention = nn.Linear(24, tags)
        self.classify = nn.Linear(24, tags)

    def forward(self, spectrogram):
        features = self.blocks(self.normalize(spectrogram).unsqueeze(1)).mean(2).transpose(1, 2)
        weight = self.attention(features).softmax(dim=1)
        clip = (weight * self.classify(features)).sum(1)
        return clip


focal = FocalLoss()


def build_model():
    torch.manual_seed(9)
    return AudioTagger()


def build_batch():
    generator = torch.Generator().manual_seed(19)
    tags = (torch.rand(24, 10, generator=generator) < 0.2).float()
    patterns = torch.randn(10, 16, generator=torch.Generator().manual_seed(0))
    spectrogram = (tags @ patterns).unsqueeze(2) + torch.randn(24, 16, 32, generator=generator)
    return {"spectrogram": spectrogram, "tags": tags}


def loss_fn(output, batch):
    return focal(output, batch["tags"])
