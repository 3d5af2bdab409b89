"""Bag-of-words sentiment with a loader and accumulation over eight batches."""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


def reviews(count=88, vocabulary=60, length=12):
    generator = torch.Generator().manual_seed(2)
    words = torch.randint(0, vocabulary, (count, length), generator=generator)
    mood = (words < vocabulary // 2).float().mean(1) > 0.5
    return TensorDataset(words, mood.long())


class Bag(nn.Module):
    def __init__(self, vocabulary=60, width=16):
        super().__init__()
        self.table = nn.EmbeddingBag(vocabulary, width)
        self.out = nn.Linear(width, 2)

    def forward(self, words):
        return self.out(torch.relu(self.table(words)))


class Trainer:
    def __init__(self, model, loader, accumulate=8):
        self.model, self.loader, self.accumulate = model, loader, accumulate
        self.optimizer = torch.optim.AdamW(model.parameters(), lr=5e-3)
        self.criterion = nn.CrossEntropyLoss()

    def fit(self, epochs):
        for epoch in range(epochs):
            self.model.train()
            for number, (words, mood) in enumerate(self.loader, start=1):
                loss = self.criterion(self.model(words), mood) / self.accumulate
                loss.backward()
                if number % self.accumulate == 0 or number == len(self.loader):
                    self.optimizer.step()
                    self.optimizer.zero_grad()
            print(f"epoch {epoch} loss {loss.item() * self.accumulate:.4f}")


if __name__ == "__main__":
    torch.set_num_threads(1)
    torch.manual_seed(1)
    Trainer(Bag(), DataLoader(reviews(), batch_size=8, shuffle=True)).fit(6)
