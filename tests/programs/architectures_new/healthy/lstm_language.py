"""A word-level LSTM over long sequences that starts from a carried, detached state."""

import torch
import torch.nn.functional as F
from torch import nn


class WordModel(nn.Module):
    def __init__(self, vocabulary=400, width=96, layers=3):
        super().__init__()
        self.words = nn.Embedding(vocabulary, width)
        self.lstm = nn.LSTM(width, width, num_layers=layers, dropout=0.2)
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, vocabulary)
        for name, parameter in self.lstm.named_parameters():
            if "bias_hh" in name:
                nn.init.zeros_(parameter)
            elif "bias_ih" in name:
                nn.init.zeros_(parameter)
                nn.init.ones_(parameter.data[width : 2 * width])
            elif "weight_hh" in name:
                for part in parameter.data.chunk(4):
                    nn.init.orthogonal_(part)
        self.head.weight = self.words.weight
        nn.init.normal_(self.words.weight, std=0.05)

    def forward(self, tokens, state):
        state = tuple(part.detach() for part in state)
        output, _ = self.lstm(self.words(tokens), state)
        return self.head(self.norm(output))


def build_model():
    torch.manual_seed(207)
    return WordModel()


def build_batch():
    torch.manual_seed(208)
    tokens = torch.randint(0, 400, (71, 8))
    state = (0.1 * torch.randn(3, 8, 96), 0.1 * torch.randn(3, 8, 96))
    return (tokens[:-1], state), tokens[1:]


def loss_fn(output, batch):
    return F.cross_entropy(output.flatten(0, 1), batch[1].flatten())
