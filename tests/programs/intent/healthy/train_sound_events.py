"""Tags sound events in spectrograms by a convolutional encoder and a recurrent tagger."""

import torch
import torch.nn.functional as F
from torch import nn

BANDS, TAGS = 20, 5


class Encoder(nn.Module):
    def __init__(self, width=32):
        super().__init__()
        self.conv1 = nn.Conv1d(BANDS, width, 5, padding=2)
        self.conv2 = nn.Conv1d(width, width, 5, padding=2)

    def forward(self, spectrum):
        return F.gelu(self.conv2(F.gelu(self.conv1(spectrum))))


class Tagger(nn.Module):
    def __init__(self, width=32):
        super().__init__()
        self.gru = nn.GRU(width, width, batch_first=True)
        self.tags = nn.Linear(width, TAGS)

    def forward(self, frames):
        states, _ = self.gru(frames.transpose(1, 2))
        return self.tags(states.mean(1))


def main():
    torch.manual_seed(5)
    encoder, tagger = Encoder(), Tagger()
    optimizer = torch.optim.Adam(
        [
            {"params": encoder.parameters(), "lr": 3e-4},
            {"params": tagger.parameters()},
        ],
        lr=2e-3,
    )
    filters = torch.randn(TAGS, BANDS, 1)
    for step in range(24):
        present = (torch.rand(16, TAGS) < 0.3).float()
        spectrum = torch.einsum("nt,tbo->nbo", present, filters) + 0.5 * torch.randn(16, BANDS, 24)
        frames = encoder(spectrum)
        scores = tagger(frames)
        loss = F.binary_cross_entropy_with_logits(scores, present)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 8 == 0:
            print(step, f"{loss.item():.4f}")


main()
