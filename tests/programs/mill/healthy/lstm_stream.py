import argparse
import math

import torch
import torch.nn.functional as F
from torch import nn


class Corpus:
    def __init__(self, length, vocabulary):
        generator = torch.Generator().manual_seed(0)
        noise = torch.randint(0, 3, (length,), generator=generator)
        self.tokens = (torch.arange(length) * 3 + noise.cumsum(0)) % vocabulary

    def batchify(self, batch_size):
        count = len(self.tokens) // batch_size
        return self.tokens[: count * batch_size].view(batch_size, count)


class LanguageModel(nn.Module):
    def __init__(self, vocabulary, width, depth, dropout=0.1):
        super().__init__()
        self.drop = nn.Dropout(dropout)
        self.embedding = nn.Embedding(vocabulary, width)
        self.rnn = nn.LSTM(width, width, depth, batch_first=True, dropout=dropout)
        self.decoder = nn.Linear(width, vocabulary)
        self.decoder.weight = self.embedding.weight
        nn.init.uniform_(self.embedding.weight, -0.1, 0.1)

    def forward(self, tokens, state):
        output, state = self.rnn(self.drop(self.embedding(tokens)), state)
        return self.decoder(self.drop(output)), state

    def start(self, batch_size):
        shape = (self.rnn.num_layers, batch_size, self.rnn.hidden_size)
        return torch.zeros(shape), torch.zeros(shape)


class StreamTrainer:
    def __init__(self, model, args):
        self.model = model
        self.args = args
        self.optimizer = torch.optim.Adam(model.parameters(), lr=args.lr)
        self.state = None

    def repackage(self, state):
        hidden, cell = state
        return hidden.detach(), cell.detach()

    def windows(self, data):
        for start in range(0, data.shape[1] - 1 - self.args.bptt, self.args.bptt):
            chunk = data[:, start : start + self.args.bptt + 1]
            yield chunk[:, :-1], chunk[:, 1:]

    def train_epoch(self, data):
        self.model.train()
        self.state = self.model.start(len(data))
        total = count = 0
        for tokens, targets in self.windows(data):
            self.state = self.repackage(self.state)
            logits, self.state = self.model(tokens, self.state)
            loss = F.cross_entropy(logits.flatten(0, 1), targets.flatten())
            self.optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(self.model.parameters(), self.args.clip)
            self.optimizer.step()
            total, count = total + loss.item(), count + 1
        return total / count


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--bptt", type=int, default=16)
    parser.add_argument("--clip", type=float, default=1.0)
    parser.add_argument("--lr", type=float, default=5e-3)
    parser.add_argument("--epochs", type=int, default=2)
    args = parser.parse_args()
    torch.manual_seed(26)
    data = Corpus(2400, 32).batchify(8)
    trainer = StreamTrainer(LanguageModel(32, 32, 2), args)
    for epoch in range(args.epochs):
        print(epoch, math.exp(trainer.train_epoch(data)))


if __name__ == "__main__":
    main()
