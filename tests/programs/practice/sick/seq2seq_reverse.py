import random

import torch
from torch import nn

VOCAB, SOS, LENGTH = 12, 0, 6


class Encoder(nn.Module):
    def __init__(self, hidden):
        super().__init__()
        self.embedding = nn.Embedding(VOCAB, hidden)
        self.gru = nn.GRU(hidden, hidden, batch_first=True)

    def forward(self, src):
        return self.gru(self.embedding(src))


class Decoder(nn.Module):
    def __init__(self, hidden):
        super().__init__()
        self.embedding = nn.Embedding(VOCAB, hidden)
        self.gru = nn.GRU(hidden, hidden, batch_first=True)
        self.out = nn.Linear(hidden, VOCAB)

    def forward(self, token, hidden):
        output, hidden = self.gru(self.embedding(token), hidden)
        return self.out(output.squeeze(1)), hidden


def train_batch(encoder, decoder, src, tgt, optimizers, criterion, teacher_forcing=0.5):
    for optimizer in optimizers:
        optimizer.zero_grad()
    _, hidden = encoder(src)
    state = hidden.data
    token = torch.full((src.size(0), 1), SOS)
    forced = random.random() < teacher_forcing
    loss = 0
    for t in range(tgt.size(1)):
        logits, state = decoder(token, state)
        loss = loss + criterion(logits, tgt[:, t])
        token = tgt[:, t : t + 1] if forced else logits.argmax(-1, keepdim=True)
    loss.backward()
    for optimizer in optimizers:
        optimizer.step()
    return loss.item() / tgt.size(1)


def main():
    random.seed(0)
    torch.manual_seed(0)
    encoder, decoder = Encoder(48), Decoder(48)
    optimizers = [torch.optim.Adam(m.parameters(), lr=5e-3) for m in (encoder, decoder)]
    criterion = nn.CrossEntropyLoss()
    for step in range(80):
        src = torch.randint(1, VOCAB, (32, LENGTH))
        loss = train_batch(encoder, decoder, src, src.flip(1), optimizers, criterion)
        if step % 20 == 0:
            print(step, round(loss, 4))


if __name__ == "__main__":
    main()
