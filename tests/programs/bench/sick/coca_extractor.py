"""Image captioning: a text decoder attends to the tokens of an image encoder."""

import torch
from torch import nn
from torch.nn import functional as F


class PatchEncoder(nn.Module):
    def __init__(self, patch=4, dim=32, classes=10):
        super().__init__()
        self.to_patch = nn.Conv2d(3, dim, patch, stride=patch)
        self.pos = nn.Parameter(0.02 * torch.randn(1, 16, dim))
        layer = nn.TransformerEncoderLayer(dim, 4, 64, dropout=0.0, batch_first=True, norm_first=True)
        self.transformer = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.head = nn.Linear(dim, classes)

    def forward(self, images):
        tokens = self.to_patch(images).flatten(2).transpose(1, 2) + self.pos
        return self.head(self.transformer(tokens).mean(dim=1))


class Extractor(nn.Module):
    """Give the tokens of an encoder instead of its class scores."""

    def __init__(self, vit):
        super().__init__()
        self.vit = vit
        self.latents = None
        self.vit.transformer.register_forward_hook(self._hook)

    def _hook(self, module, args, output):
        self.latents = output.clone().detach()

    def forward(self, images):
        self.vit(images)
        return self.latents


class Captioner(nn.Module):
    def __init__(self, encoder, vocab=30, dim=32):
        super().__init__()
        self.encoder = encoder
        self.embed = nn.Embedding(vocab, dim)
        self.cross = nn.MultiheadAttention(dim, 4, batch_first=True)
        self.rnn = nn.GRU(dim, dim, batch_first=True)
        self.out = nn.Linear(dim, vocab)

    def forward(self, images, captions):
        memory = self.encoder(images)
        hidden, _ = self.rnn(self.embed(captions))
        attended, _ = self.cross(hidden, memory, memory)
        return self.out(hidden + attended)


def build_model():
    torch.manual_seed(5)
    vit = PatchEncoder()
    vit.head.requires_grad_(False)
    return Captioner(Extractor(vit))


def build_batch():
    g = torch.Generator().manual_seed(6)
    return {
        "images": torch.randn(4, 3, 16, 16, generator=g),
        "captions": torch.randint(30, (4, 9), generator=g),
    }


def compute_loss(model, batch):
    logits = model(batch["images"], batch["captions"][:, :-1])
    return F.cross_entropy(logits.flatten(0, 1), batch["captions"][:, 1:].flatten())
