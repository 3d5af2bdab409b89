import torch
import torch.nn.functional as F
from torch import nn


class LineReader(nn.Module):
    def __init__(self, height=10, chars=9, dim=32):
        super().__init__()
        self.conv = nn.Sequential(nn.Conv1d(height, dim, 5, padding=2), nn.ReLU())
        self.rnn = nn.LSTM(dim, dim, bidirectional=True)
        self.proj = nn.Linear(2 * dim, chars + 1)

    def forward(self, images):
        frames = self.conv(images).permute(2, 0, 1)
        hidden, _ = self.rnn(frames)
        return self.proj(hidden)


def build_model():
    torch.manual_seed(51)
    return LineReader()


def build_batch():
    g = torch.Generator().manual_seed(52)
    labels = torch.randint(1, 10, (6, 5), generator=g)
    images = torch.randn(6, 10, 30, generator=g) * 0.2
    for row in range(6):
        for i, c in enumerate(labels[row]):
            images[row, c, i * 6 : i * 6 + 4] += 1.5
    return {"images": images, "labels": labels}


def compute_loss(model, batch):
    scores = model(batch["images"])
    input_lengths = torch.full((6,), scores.shape[0])
    target_lengths = torch.full((6,), batch["labels"].shape[1])
    return F.ctc_loss(scores, batch["labels"], input_lengths, target_lengths)
