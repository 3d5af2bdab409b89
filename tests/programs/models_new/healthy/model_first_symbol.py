import torch
import torch.nn as nn


class ElmanCell(nn.Module):
    def __init__(self, n_in, n_hidden):
        super().__init__()
        self.wx = nn.Parameter(torch.randn(n_in, n_hidden) * 0.3)
        self.wh = nn.Parameter(nn.init.orthogonal_(torch.empty(n_hidden, n_hidden)))
        self.b = nn.Parameter(torch.zeros(n_hidden))

    def forward(self, x, h):
        return torch.tanh(x @ self.wx + h @ self.wh + self.b)


class Recall(nn.Module):
    def __init__(self, symbols=6, hidden=24):
        super().__init__()
        self.hidden = hidden
        self.cell = ElmanCell(symbols, hidden)
        self.head = nn.Linear(hidden, symbols)

    def forward(self, sequence):
        h = sequence.new_zeros(sequence.size(1), self.hidden)
        for x in sequence:
            h = self.cell(x, h)
        return self.head(h)


def build_model():
    torch.manual_seed(111)
    return Recall()


def build_batch():
    g = torch.Generator().manual_seed(112)
    first = torch.randint(0, 6, (32,), generator=g)
    sequence = torch.zeros(80, 32, 6)
    sequence[0] = nn.functional.one_hot(first, 6).float()
    sequence[1:] = 0.02 * torch.randn(79, 32, 6, generator=g)
    return sequence, first


def loss_fn(output, batch):
    return nn.functional.cross_entropy(output, batch[1])
