"""Raw-waveform CTC recogniser: strided convolutions, a transformer layer, and a character head."""
import torch
import torch.nn as nn
import torch.nn.functional as F


class WaveEncoder(nn.Module):
    def __init__(self, dim=24, vocab=12):
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv1d(1, dim, 10, stride=5), nn.GroupNorm(4, dim), nn.GELU(),
            nn.Conv1d(dim, dim, 4, stride=2), nn.GELU(),
            nn.Conv1d(dim, dim, 3, stride=2), nn.GELU())
        self.encoder = nn.TransformerEncoderLayer(dim, 4, 48, dropout=0.0, batch_first=True)
        self.head = nn.Linear(dim, vocab)

    def forward(self, wave, targets=None, lengths=None):
        h = self.features(wave.unsqueeze(1)).transpose(1, 2)
        logits = self.head(self.encoder(h))
        batch, steps, vocab = logits.shape
        logits = logits.transpose(0, 1)
        return F.log_softmax(logits, dim=-1)


def build_model():
    torch.manual_seed(71)
    return WaveEncoder()


def build_batch():
    g = torch.Generator().manual_seed(72)
    lengths = torch.tensor([6, 4, 5, 3, 6, 5])
    return {"wave": torch.randn(6, 640, generator=g), "targets": torch.randint(1, 12, (6, 6), generator=g), "lengths": lengths}


def loss_fn(output, batch):
    steps = torch.full((output.shape[1],), output.shape[0], dtype=torch.long)
    return F.ctc_loss(output, batch["targets"], steps, batch["lengths"])
