import random

import torch
import torch.nn as nn

EOS, SIZE = 0, 12


class EncoderRNN(nn.Module):
    def __init__(self, hidden):
        super().__init__()
        self.embedding = nn.Embedding(SIZE, hidden)
        self.cell = nn.GRUCell(hidden, hidden)
        self.hidden = hidden

    def forward(self, tokens):
        state = torch.zeros(tokens.shape[0], self.hidden)
        for t in range(tokens.shape[1]):
            state = self.cell(self.embedding(tokens[:, t]), state)
        return state


class DecoderRNN(nn.Module):
    def __init__(self, hidden):
        super().__init__()
        self.embedding = nn.Embedding(SIZE, hidden)
        self.cell = nn.GRUCell(hidden, hidden)
        self.out = nn.Linear(hidden, SIZE)

    def forward(self, token, state):
        state = self.cell(self.embedding(token), state)
        return self.out(state), state


def train_batch(source, target, encoder, decoder, optimizers, criterion, forcing=0.7):
    for optimizer in optimizers:
        optimizer.zero_grad()
    state = encoder(source)
    token = torch.full((source.shape[0],), EOS)
    loss = 0
    forced = random.random() < forcing
    for t in range(target.shape[1]):
        logits, state = decoder(token, state)
        loss = loss + criterion(logits, target[:, t])
        token = target[:, t] if forced else logits.argmax(1)
    loss.backward()
    for optimizer in optimizers:
        optimizer.step()
    return loss.item() / target.shape[1]


def main():
    random.seed(2)
    torch.manual_seed(2)
    encoder, decoder = EncoderRNN(40), DecoderRNN(40)
    optimizers = [torch.optim.Adam(m.parameters(), lr=4e-3) for m in (encoder, decoder)]
    criterion = nn.CrossEntropyLoss()
    for it in range(100):
        source = torch.randint(1, SIZE, (24, 5))
        loss = train_batch(source, source.flip(1), encoder, decoder, optimizers, criterion)
        if it % 20 == 0:
            print(it, round(loss, 3))


main()
