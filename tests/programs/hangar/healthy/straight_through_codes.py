import torch
import torch.nn as nn
import torch.nn.functional as F


class Codebook(nn.Module):
    def __init__(self, codes=24, size=12):
        super().__init__()
        self.codes = nn.Embedding(codes, size)
        nn.init.uniform_(self.codes.weight, -0.5, 0.5)

    def forward(self, vectors):
        distance = torch.cdist(vectors, self.codes.weight.expand(len(vectors), -1, -1))
        chosen = self.codes(distance.argmin(-1))
        codebook = F.mse_loss(chosen, vectors.detach())
        commitment = F.mse_loss(vectors, chosen.detach())
        return vectors + (chosen - vectors).detach(), codebook + 0.25 * commitment


class SpeechCodec(nn.Module):
    def __init__(self, size=12):
        super().__init__()
        self.encoder = nn.Sequential(nn.Conv1d(1, 16, 8, stride=4), nn.ELU(), nn.Conv1d(16, size, 4, stride=2))
        self.codebook = Codebook(size=size)
        self.decoder = nn.Sequential(
            nn.ConvTranspose1d(size, 16, 4, stride=2), nn.ELU(), nn.ConvTranspose1d(16, 1, 8, stride=4)
        )

    def forward(self, wave):
        vectors, penalty = self.codebook(self.encoder(wave).transpose(1, 2))
        return self.decoder(vectors.transpose(1, 2)), penalty


def build_model():
    torch.manual_seed(1)
    return SpeechCodec()


def build_batch():
    generator = torch.Generator().manual_seed(1)
    pitch = 0.1 + 0.3 * torch.rand(16, 1, 1, generator=generator)
    return {"wave": torch.sin(pitch * torch.arange(128)) + 0.05 * torch.randn(16, 1, 128, generator=generator)}


def loss_fn(output, batch):
    rebuilt, penalty = output
    return F.l1_loss(rebuilt, batch["wave"][..., : rebuilt.size(-1)]) + penalty
