"""Hand-written recurrent net over 100 steps; the label is the symbol at the very beginning of the sequence."""
import torch
import torch.nn as nn
import torch.nn.functional as F


class MemoryRNN(nn.Module):
    def __init__(self, vocab=5, hidden=32):
        super().__init__()
        self.embed = nn.Embedding(vocab, hidden)
        nn.init.normal_(self.embed.weight, std=0.02)
        self.w_hh = nn.Parameter(torch.empty(hidden, hidden))
        nn.init.normal_(self.w_hh, std=0.01)
        self.bias = nn.Parameter(torch.zeros(hidden))
        self.out = nn.Linear(hidden, 4)

    def forward(self, tokens):
        inputs = self.embed(tokens)
        h = torch.zeros(tokens.shape[0], self.bias.shape[0])
        for t in range(tokens.shape[1]):
            h = torch.tanh(inputs[:, t] + h @ self.w_hh + self.bias)
        return self.out(h)


def build_model():
    torch.manual_seed(101)
    return MemoryRNN()


def build_batch():
    g = torch.Generator().manual_seed(102)
    tokens = torch.full((24, 100), 4)
    tokens[:, 0] = torch.randint(0, 4, (24,), generator=g)
    return tokens, tokens[:, 0].clone()


def loss_fn(output, batch):
    return F.cross_entropy(output, batch[1])
