"""Contrastive speech pretraining: masked context vectors predict quantized latents."""

import torch
from torch import nn
from torch.nn import functional as F


class GumbelVectorQuantizer(nn.Module):
    def __init__(self, d_in, entries=12, d_out=16, tau=2.0):
        super().__init__()
        self.tau = tau
        self.entry_proj = nn.Linear(d_in, entries)
        self.entries = nn.Parameter(torch.rand(entries, d_out))

    def forward(self, x):
        choice = F.gumbel_softmax(self.entry_proj(x), tau=self.tau, hard=True)
        return choice @ self.entries


class Wav2Vec(nn.Module):
    def __init__(self, d_in=10, dim=24, d_final=16):
        super().__init__()
        self.features = nn.Sequential(nn.Conv1d(d_in, dim, 3, padding=1), nn.GELU(),
                                      nn.Conv1d(dim, dim, 3, padding=1), nn.GELU())
        self.mask_emb = nn.Parameter(torch.rand(dim))
        self.context = nn.GRU(dim, dim, batch_first=True, bidirectional=True)
        self.final_proj = nn.Linear(2 * dim, d_final)
        self.quantizer = GumbelVectorQuantizer(dim, d_out=d_final)

    def forward(self, batch):
        audio, mask = batch
        features = self.features(audio).transpose(1, 2)
        targets = self.quantizer(features[mask])
        masked = torch.where(mask.unsqueeze(-1), self.mask_emb, features)
        context = self.final_proj(self.context(masked)[0][mask])
        return context, targets


def contrastive_loss(context, targets, temperature=0.1):
    logits = F.cosine_similarity(context.unsqueeze(1), targets.unsqueeze(0), dim=-1)
    return F.cross_entropy(logits / temperature, torch.arange(len(context)))


def compute_loss(model, batch):
    context, targets = model(batch)
    return contrastive_loss(context, targets)


def build_model():
    torch.manual_seed(3)
    return Wav2Vec()


def build_batch():
    g = torch.Generator().manual_seed(4)
    mask = torch.zeros(4, 20, dtype=torch.bool)
    mask[:, 4:9] = True
    mask[::2, 13:16] = True
    return torch.randn(4, 10, 20, generator=g), mask
