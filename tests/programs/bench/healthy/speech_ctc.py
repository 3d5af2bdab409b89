"""A convolutional and recurrent speech recognizer trained with CTC."""

import torch
from torch import nn
from torch.nn import functional as F

ALPHABET = 12  # 0 is the blank


class SpeechModel(nn.Module):
    def __init__(self, mels=20, dim=32):
        super().__init__()
        self.conv = nn.Sequential(nn.Conv1d(mels, dim, 5, stride=2, padding=2), nn.ReLU())
        self.rnn = nn.LSTM(dim, dim, batch_first=True, bidirectional=True)
        self.norm = nn.LayerNorm(2 * dim)
        self.fc = nn.Linear(2 * dim, ALPHABET)

    def forward(self, mel):
        h = self.conv(mel).transpose(1, 2)
        h, _ = self.rnn(h)
        return self.fc(self.norm(h))


def frames_after_stride(lengths):
    return (lengths - 1) // 2 + 1


def compute_loss(model, batch):
    scores = model(batch["mel"])
    log_probs = F.log_softmax(scores, dim=-1).transpose(0, 1)
    return F.ctc_loss(
        log_probs,
        batch["text"],
        frames_after_stride(batch["mel_lengths"]),
        batch["text_lengths"],
        zero_infinity=True,
    )


def build_model():
    torch.manual_seed(23)
    return SpeechModel()


def build_batch():
    g = torch.Generator().manual_seed(24)
    return {
        "mel": torch.randn(4, 20, 48, generator=g),
        "mel_lengths": torch.tensor([48, 44, 40, 36]),
        "text": torch.randint(1, ALPHABET, (4, 7), generator=g),
        "text_lengths": torch.tensor([7, 6, 7, 5]),
    }
