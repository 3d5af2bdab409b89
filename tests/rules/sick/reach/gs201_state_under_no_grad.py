"""The encoder of a sequence model runs under `no_grad`, left over from an evaluation."""

import torch
from torch import nn
from torch.nn import functional


class Captioner(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(10, 16), nn.GELU(), nn.Linear(16, 16))
        self.decoder, self.head = nn.GRU(4, 16, batch_first=True), nn.Linear(16, 7)

    def encode(self, image):
        with torch.no_grad():
            return self.encoder(image)  # <-

    def forward(self, image, words):
        out, _ = self.decoder(words, self.encode(image)[None])
        return self.head(out)


def loss_fn(model, batch):
    image, words, target = batch
    return functional.cross_entropy(model(image, words).flatten(0, 1), target.flatten())


def build_optimizer(model):
    return torch.optim.Adam(model.parameters(), lr=1e-3)


torch.manual_seed(0)
model = Captioner()
batch = (torch.randn(4, 10), torch.randn(4, 6, 4), torch.randint(7, (4, 6)))
