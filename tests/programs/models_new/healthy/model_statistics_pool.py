"""Speaker features: mean and standard deviation over time."""
import torch
import torch.nn as nn


class StatsPool(nn.Module):
    def forward(self, h):
        mean = h.mean(dim=2)
        spread = (h.var(dim=2) + 1e-5).sqrt()
        return torch.cat([mean, spread], dim=1)


class SpeakerNet(nn.Module):
    def __init__(self, mels=12, speakers=4):
        super().__init__()
        self.frames = nn.Sequential(nn.Conv1d(mels, 24, 1), nn.ReLU(), nn.Conv1d(24, 24, 1), nn.ReLU())
        self.pool = StatsPool()
        self.head = nn.Linear(48, speakers)

    def forward(self, mel):
        return self.head(self.pool(self.frames(mel)))


def build_model():
    torch.manual_seed(211)
    return SpeakerNet()


def build_batch():
    g = torch.Generator().manual_seed(212)
    speaker = torch.arange(20) % 4
    mel = torch.randn(20, 12, 30, generator=g) + speaker.view(-1, 1, 1)
    mel[7] = 0.0
    return mel, speaker


def loss_fn(output, batch):
    return nn.functional.cross_entropy(output, batch[1])
