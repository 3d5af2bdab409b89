import math

import torch
from torch import nn

TEXT = "the quick brown fox jumps over the lazy dog and runs away from the angry bear. " * 40


class CharRNN(nn.Module):
    def __init__(self, vocab, hidden, layers):
        super().__init__()
        self.hidden, self.layers = hidden, layers
        self.encoder = nn.Embedding(vocab, hidden)
        self.rnn = nn.LSTM(hidden, hidden, layers, dropout=0.1)
        self.decoder = nn.Linear(hidden, vocab)

    def forward(self, x, state):
        output, state = self.rnn(self.encoder(x), state)
        return self.decoder(output), state

    def init_state(self, batch):
        weight = next(self.parameters())
        return tuple(weight.new_zeros(self.layers, batch, self.hidden) for _ in range(2))


def repackage(state):
    return tuple(s.detach() for s in state)


def main():
    torch.manual_seed(44)
    chars = sorted(set(TEXT))
    index = {c: i for i, c in enumerate(chars)}
    data = torch.tensor([index[c] for c in TEXT])
    batch, bptt = 8, 20
    data = data[: len(data) // batch * batch].view(batch, -1).t().contiguous()
    model = CharRNN(len(chars), 48, 2)
    criterion = nn.CrossEntropyLoss()
    lr = 4.0
    best = math.inf
    for epoch in range(3):
        model.train()
        state = model.init_state(batch)
        total = 0.0
        for i in range(0, data.size(0) - 1, bptt):
            length = min(bptt, data.size(0) - 1 - i)
            x, y = data[i : i + length], data[i + 1 : i + 1 + length]
            model.zero_grad()
            state = repackage(state)
            output, state = model(x, state)
            loss = criterion(output.flatten(0, 1), y.flatten())
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 0.25)
            with torch.no_grad():
                for p in model.parameters():
                    p.add_(p.grad, alpha=-lr)
            total += loss.item()
        mean = total / math.ceil(data.size(0) / bptt)
        if mean < best:
            best = mean
        else:
            lr /= 4.0
        print(f"epoch {epoch} lr {lr} loss {mean:.3f}")


main()
