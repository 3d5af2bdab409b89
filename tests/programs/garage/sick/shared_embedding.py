import math

import torch
from torch import nn
from torch.nn import functional as F


class GRULanguageModel(nn.Module):
    def __init__(self, vocab=64, dim=48, layers=1, tie=True):
        super().__init__()
        self.embedding = nn.Embedding(vocab, dim)
        self.rnn = nn.GRU(dim, dim, layers, batch_first=True)
        self.decoder = nn.Linear(dim, vocab, bias=False)
        self.drop = nn.Dropout(0.1)
        self.init_weights()
        if tie:
            self.decoder.weight.data = self.embedding.weight.data

    def init_weights(self):
        nn.init.uniform_(self.embedding.weight, -0.1, 0.1)

    def forward(self, ids, state=None):
        x, state = self.rnn(self.drop(self.embedding(ids)), state)
        return self.decoder(self.drop(x)), state


def text(length, vocab, generator):
    steps = torch.randint(1, 3, (length,), generator=generator)
    return steps.cumsum(0) % vocab


def batchify(data, columns):
    rows = len(data) // columns
    return data[: rows * columns].view(columns, rows)


def get_batch(source, i, bptt):
    length = min(bptt, source.size(1) - 1 - i)
    return source[:, i : i + length], source[:, i + 1 : i + 1 + length]


def train_epoch(model, data, optimizer, bptt):
    model.train()
    state, total, count = None, 0.0, 0
    for i in range(0, data.size(1) - 1, bptt):
        inputs, targets = get_batch(data, i, bptt)
        if state is not None:
            state = state.detach()
        logits, state = model(inputs, state)
        loss = F.cross_entropy(logits.flatten(0, 1), targets.flatten())
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 0.5)
        optimizer.step()
        total, count = total + loss.item(), count + 1
    return total / count


def main():
    torch.manual_seed(34)
    generator = torch.Generator().manual_seed(34)
    data = batchify(text(4000, 64, generator), columns=10)
    model = GRULanguageModel()
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    for epoch in range(2):
        mean = train_epoch(model, data, optimizer, bptt=25)
        print(f"epoch {epoch} loss {mean:.3f} perplexity {math.exp(mean):.2f}")


if __name__ == "__main__":
    main()
