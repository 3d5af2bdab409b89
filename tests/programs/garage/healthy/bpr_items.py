import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Interactions(Dataset):
    """Triples of user, bought item and an item that was not bought."""

    def __init__(self, users, items, seed=0):
        rng = np.random.default_rng(seed)
        taste = rng.normal(size=(users, 4)) @ rng.normal(size=(4, items))
        self.liked = [np.argsort(-row)[:10] for row in taste]
        self.items = items
        self.pairs = [(u, int(i)) for u in range(users) for i in self.liked[u]]
        self.rng = rng

    def __len__(self):
        return len(self.pairs)

    def __getitem__(self, index):
        user, item = self.pairs[index]
        other = int(self.rng.integers(self.items))
        while other in self.liked[user]:
            other = int(self.rng.integers(self.items))
        return user, item, other


class Factorisation(nn.Module):
    def __init__(self, users, items, dim=16):
        super().__init__()
        self.user = nn.Embedding(users, dim)
        self.item = nn.Embedding(items, dim)
        self.bias = nn.Embedding(items, 1)
        for table in (self.user, self.item):
            nn.init.normal_(table.weight, std=0.1)
        nn.init.zeros_(self.bias.weight)

    def score(self, user, item):
        return (self.user(user) * self.item(item)).sum(-1) + self.bias(item).squeeze(-1)

    def forward(self, user, liked, other):
        return self.score(user, liked), self.score(user, other)


def bpr_loss(positive, negative):
    return -torch.nn.functional.logsigmoid(positive - negative).mean()


def accuracy(model, data):
    model.eval()
    with torch.no_grad():
        user, liked, other = (torch.tensor(x) for x in zip(*(data[i] for i in range(100))))
        positive, negative = model(user, liked, other)
    model.train()
    return (positive > negative).float().mean().item()


def main():
    torch.manual_seed(4)
    data = Interactions(users=50, items=80)
    model = Factorisation(50, 80)
    loader = DataLoader(data, batch_size=32, shuffle=True)
    optimizer = torch.optim.Adagrad(model.parameters(), lr=0.05, weight_decay=1e-5)
    for epoch in range(4):
        for user, liked, other in loader:
            positive, negative = model(user, liked, other)
            loss = bpr_loss(positive, negative)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        print(f"epoch {epoch} loss {loss.item():.4f} acc {accuracy(model, data):.2f}")


if __name__ == "__main__":
    main()
