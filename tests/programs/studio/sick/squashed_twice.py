"""A multi-label tagger of audio clips."""

import torch
from torch import nn
from torch.nn import functional as F


class AttentionPool(nn.Module):
    def __init__(self, dim, tags):
        super().__init__()
        self.attend, self.classify = nn.Linear(dim, tags), nn.Linear(dim, tags)

    def forward(self, x):
        weights = self.attend(x).softmax(dim=1)
        return (weights * self.classify(x)).sum(1)


class Tagger(nn.Module):
    def __init__(self, mels=16, dim=24, tags=6):
        super().__init__()
        self.front = nn.Sequential(nn.Conv1d(mels, dim, 5, padding=2), nn.BatchNorm1d(dim), nn.ReLU())
        self.rnn = nn.GRU(dim, dim // 2, batch_first=True, bidirectional=True)
        self.pool = AttentionPool(dim, tags)

    def forward(self, mel):
        hidden, _ = self.rnn(self.front(mel).transpose(1, 2))
        scores = self.pool(hidden)
        return torch.sigmoid(scores)


class WeightedTags(nn.Module):
    def __init__(self, frequency):
        super().__init__()
        self.register_buffer("pos_weight", (1 - frequency) / frequency)

    def forward(self, scores, tags):
        return F.binary_cross_entropy_with_logits(scores, tags, pos_weight=self.pos_weight)


CRITERION = WeightedTags(torch.tensor([0.5, 0.3, 0.2, 0.2, 0.1, 0.4]))


def build_model():
    torch.manual_seed(0)
    return Tagger()


def build_batch():
    torch.manual_seed(1)
    return torch.randn(8, 16, 30), (torch.rand(8, 6) < 0.3).float()


def loss_fn(output, batch):
    return CRITERION(output, batch[1])
