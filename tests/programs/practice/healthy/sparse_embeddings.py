import torch
import torch.nn.functional as F
from torch import nn


class Tower(nn.Module):
    def __init__(self, count, width=16):
        super().__init__()
        self.ids = nn.Embedding(count, width, sparse=True)
        self.mlp = nn.Sequential(nn.Linear(width, width), nn.ReLU(), nn.Linear(width, width))

    def forward(self, ids):
        h = self.ids(ids)
        return F.normalize(h + self.mlp(h), dim=-1)


class TwoTower(nn.Module):
    def __init__(self, users=200, items=300):
        super().__init__()
        self.user, self.item = Tower(users), Tower(items)

    def forward(self, users, items, temperature=0.1):
        return self.user(users) @ self.item(items).T / temperature


def interactions(n):
    users = torch.randint(0, 200, (n,))
    items = torch.randint(0, 30, (n,)) * 10 + users % 10
    return users, items


def main():
    torch.manual_seed(10)
    model = TwoTower()
    sparse = [m.weight for m in model.modules() if isinstance(m, nn.Embedding)]
    dense = [p for n, p in model.named_parameters() if "mlp" in n]
    optimizers = [torch.optim.SparseAdam(sparse, lr=1e-2), torch.optim.Adam(dense, lr=2e-3)]
    for step in range(80):
        users, items = interactions(48)
        logits = model(users, items)
        duplicate = (items[:, None] == items[None]) & ~torch.eye(48, dtype=torch.bool)
        loss = F.cross_entropy(logits.masked_fill(duplicate, -1e4), torch.arange(48))
        for optimizer in optimizers:
            optimizer.zero_grad()
        loss.backward()
        for optimizer in optimizers:
            optimizer.step()
        if step % 20 == 0:
            print(step, loss.item())


if __name__ == "__main__":
    main()
