"""Sentiment classifier: embedding, LSTM, and a linear layer on the output at the last token."""
import torch
import torch.nn as nn
import torch.nn.functional as F


class Sentiment(nn.Module):
    def __init__(self, vocab=50, dim=16, hidden=24):
        super().__init__()
        self.embed = nn.Embedding(vocab, dim)
        self.lstm = nn.LSTM(dim, hidden, num_layers=2)
        self.fc = nn.Linear(hidden, 2)

    def forward(self, tokens):
        out, _ = self.lstm(self.embed(tokens))
        return self.fc(out[:, -1])


def build_model():
    torch.manual_seed(271)
    return Sentiment()


def build_batch():
    g = torch.Generator().manual_seed(272)
    tokens = torch.randint(0, 50, (16, 12), generator=g)
    return tokens, (tokens[:, 3] < 25).long()


def loss_fn(output, batch):
    return F.cross_entropy(output, batch[1])
