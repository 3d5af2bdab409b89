"""Recognises speech commands: convolution over mel frames, a GRU, and CTC."""

import torch
import torch.nn.functional as F
from torch import nn


class CommandRecognizer(nn.Module):
    def __init__(self, mels=40, width=64, symbols=28):
        super().__init__()
        self.width = width
        self.conv = nn.Sequential(
            nn.Conv2d(1, 16, (11, 5), stride=(2, 1), padding=(5, 2)),
            nn.BatchNorm2d(16),
            nn.Hardtanh(0, 20),
            nn.Conv2d(16, 16, (11, 5), stride=(2, 1), padding=(5, 2)),
            nn.BatchNorm2d(16),
            nn.Hardtanh(0, 20),
        )
        self.gru = nn.GRU(width, width, num_layers=2, batch_first=True, bidirectional=True)
        self.head = nn.Linear(2 * width, symbols)

    def forward(self, mel):
        x = self.conv(mel).flatten(1, 2).transpose(1, 2)
        x = nn.Linear(x.shape[-1], self.width)(x)
        x, _ = self.gru(F.relu(x))
        return self.head(x).log_softmax(dim=-1)


def build_model():
    torch.manual_seed(21)
    return CommandRecognizer()


def build_batch():
    torch.manual_seed(22)
    return torch.randn(6, 1, 40, 50), torch.randint(1, 28, (6, 8))


def loss_fn(output, batch):
    lengths = torch.full((len(output),), output.shape[1])
    targets = torch.full((len(output),), batch[1].shape[1])
    return F.ctc_loss(output.transpose(0, 1), batch[1], lengths, targets)


def build_optimizer(model):
    return torch.optim.AdamW(model.parameters(), lr=1e-3)
