from collections import defaultdict

import torch
import torch.nn as nn
import torch.nn.functional as F


class Meters:
    def __init__(self, decay=0.95):
        self.decay = decay
        self.values = defaultdict(lambda: None)

    def update(self, **values):
        for name, value in values.items():
            last = self.values[name]
            self.values[name] = value if last is None else self.decay * last + (1 - self.decay) * value

    def line(self):
        return " ".join(f"{name} {float(value):.3f}" for name, value in self.values.items())


class SequenceRecommender(nn.Module):
    def __init__(self, items=200, width=32):
        super().__init__()
        self.items = nn.Embedding(items, width)
        self.rnn = nn.GRU(width, width, batch_first=True)
        self.rating = nn.Linear(width, 1)

    def forward(self, history):
        hidden = self.rnn(self.items(history))[0][:, -1]
        return hidden @ self.items.weight.T, self.rating(hidden).squeeze(-1)


def sessions(count, generator):
    start = torch.randint(0, 200, (count, 1), generator=generator)
    path = (start + 3 * torch.arange(9)) % 200
    return path[:, :-1], path[:, -1], torch.sin(start[:, 0] / 20)


def train(steps=60):
    torch.manual_seed(0)
    generator = torch.Generator().manual_seed(4)
    model, meters = SequenceRecommender(), Meters()
    optimizer = torch.optim.Adagrad(model.parameters(), lr=0.05)
    for step in range(1, steps + 1):
        history, item, rating = sessions(32, generator)
        logits, predicted = model(history)
        ranking = F.cross_entropy(logits, item)
        regression = F.mse_loss(predicted, rating)
        loss = ranking + 0.3 * regression
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        meters.update(loss=loss, ranking=ranking, regression=regression)
        if step % 20 == 0:
            print(step, meters.line())
    return model


if __name__ == "__main__":
    train()
