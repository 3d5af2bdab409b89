import torch
from torch import nn


class LanguageModel(nn.Module):
    def __init__(self, vocab: int, width: int, tie_weights: bool = True):
        super().__init__()
        self.encoder = nn.Embedding(vocab, width)
        self.rnn = nn.LSTM(width, width, num_layers=1, batch_first=True)
        self.decoder = nn.Linear(width, vocab, bias=False)
        nn.init.uniform_(self.encoder.weight, -0.1, 0.1)
        if tie_weights:
            self.decoder.weight = self.encoder.weight

    def forward(self, tokens):
        hidden, _ = self.rnn(self.encoder(tokens))
        return self.decoder(hidden)


def build_model():
    torch.manual_seed(241)
    return LanguageModel(vocab=48, width=32)


def build_batch():
    g = torch.Generator().manual_seed(242)
    start = torch.randint(0, 48, (12, 1), generator=g)
    sequence = (start + torch.arange(15)) % 48
    return sequence[:, :-1], sequence[:, 1:]


def loss_fn(output, batch):
    return nn.functional.cross_entropy(output.reshape(-1, 48), batch[1].reshape(-1))
