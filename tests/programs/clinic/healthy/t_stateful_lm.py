import math

import torch
import torch.nn.functional as F
from torch import nn


class Model(nn.Module):
    def __init__(self, letters=16, dim=40):
        super().__init__()
        self.embedding = nn.Embedding(letters, dim)
        self.rnn = nn.LSTM(dim, dim, num_layers=2, dropout=0.1)
        self.head = nn.Linear(dim, letters)
        self.head.weight = self.embedding.weight
        nn.init.normal_(self.embedding.weight, std=0.1)

    def start(self, batch):
        zeros = torch.zeros(2, batch, self.rnn.hidden_size)
        return zeros, zeros.clone()

    def forward(self, ids, state):
        h, state = self.rnn(self.embedding(ids), state)
        return self.head(h), state


def detached(state):
    return tuple(one.detach() for one in state)


def text(length=4000, letters=16):
    ids = [1, 2]
    generator = torch.Generator().manual_seed(10)
    noise = torch.randint(0, letters, (length,), generator=generator).tolist()
    lucky = (torch.rand(length, generator=generator) < 0.1).tolist()
    for i in range(length - 2):
        ids.append(noise[i] if lucky[i] else (ids[-1] + ids[-2]) % letters)
    return torch.tensor(ids)


def batched(ids, batch):
    columns = len(ids) // batch
    return ids[: columns * batch].view(batch, columns).T.contiguous()


def train_epoch(model, data, optimizer, window):
    model.train()
    state = model.start(data.shape[1])
    total, count = 0.0, 0
    for i in range(0, len(data) - 1, window):
        size = min(window, len(data) - 1 - i)
        inputs, targets = data[i : i + size], data[i + 1 : i + 1 + size]
        state = detached(state)
        scores, state = model(inputs, state)
        loss = F.cross_entropy(scores.flatten(0, 1), targets.flatten())
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 0.5)
        optimizer.step()
        total += size * loss.item()
        count += size
    return total / count


def main():
    torch.manual_seed(10)
    model = Model()
    data = batched(text(), 16)
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
    plateau = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, factor=0.5, patience=1)
    for epoch in range(5):
        loss = train_epoch(model, data, optimizer, window=20)
        plateau.step(loss)
        print(f"epoch {epoch}: perplexity {math.exp(loss):.2f}")


if __name__ == "__main__":
    main()
