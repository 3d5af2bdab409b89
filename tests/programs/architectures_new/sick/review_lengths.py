"""Rates reviews of different lengths with a packed bidirectional GRU."""

import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence


class ReviewRater(nn.Module):
    def __init__(self, vocabulary=600, width=48, classes=5):
        super().__init__()
        self.words = nn.Embedding(vocabulary, width, padding_idx=0)
        self.gru = nn.GRU(width, width, num_layers=2, batch_first=True)
        self.head = nn.Sequential(nn.Linear(width, width), nn.ReLU(), nn.Linear(width, classes))

    def forward(self, tokens, lengths):
        packed = pack_padded_sequence(
            self.words(tokens), lengths, batch_first=True, enforce_sorted=False
        )
        output, state = self.gru(packed)
        output, _ = pad_packed_sequence(output, batch_first=True)
        return self.head(output[:, -1])


def build_model():
    torch.manual_seed(81)
    return ReviewRater()


def build_batch():
    torch.manual_seed(82)
    lengths = torch.randint(5, 30, (16,))
    lengths[3] = 40
    tokens = torch.randint(1, 600, (16, 40))
    tokens[torch.arange(40) >= lengths.unsqueeze(1)] = 0
    return (tokens, lengths), torch.randint(0, 5, (16,))


def loss_fn(output, batch):
    return F.cross_entropy(output, batch[1])
