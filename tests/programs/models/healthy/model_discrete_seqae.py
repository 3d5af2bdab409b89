"""Sequence autoencoder that sends a short discrete message from an encoder to a decoder."""
import torch
import torch.nn as nn
import torch.nn.functional as F


class DiscreteAutoencoder(nn.Module):
    def __init__(self, vocab=12, dim=24, codes=10, length=4):
        super().__init__()
        self.codes, self.length = codes, length
        self.embed = nn.Embedding(vocab, dim)
        self.encoder = nn.GRU(dim, dim, batch_first=True)
        self.to_code = nn.Linear(dim, codes * length)
        self.code_proj = nn.Linear(codes * length, dim)
        self.decoder = nn.GRU(dim, dim, batch_first=True)
        self.out = nn.Linear(dim, vocab)

    def forward(self, tokens):
        _, state = self.encoder(self.embed(tokens))
        logits = self.to_code(state[-1]).view(-1, self.length, self.codes)
        message = F.gumbel_softmax(logits, tau=1.0, hard=True)
        start = self.code_proj(message.flatten(1))
        hidden, _ = self.decoder(start.unsqueeze(1).expand(-1, tokens.shape[1], -1))
        return self.out(hidden)


def build_model():
    torch.manual_seed(171)
    return DiscreteAutoencoder()


def build_batch():
    g = torch.Generator().manual_seed(172)
    tokens = torch.randint(0, 12, (20, 6), generator=g)
    return tokens, tokens


def loss_fn(output, batch):
    return F.cross_entropy(output.flatten(0, 1), batch[1].flatten())
