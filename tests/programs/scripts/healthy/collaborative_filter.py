import torch
import torch.nn as nn


class NCF(nn.Module):
    def __init__(self, users=100, items=80, dim=12):
        super().__init__()
        self.user, self.item = nn.Embedding(users, dim), nn.Embedding(items, dim)
        self.user_bias, self.item_bias = nn.Embedding(users, 1), nn.Embedding(items, 1)
        self.mlp = nn.Sequential(nn.Linear(2 * dim, 32), nn.ReLU(), nn.Linear(32, 16), nn.ReLU(), nn.Linear(16, 1))
        self.reset()

    def reset(self):
        for m in (self.user, self.item):
            nn.init.normal_(m.weight, std=0.05)
        for m in (self.user_bias, self.item_bias):
            nn.init.zeros_(m.weight)
        nn.init.constant_(self.mlp[-1].bias, 3.0)

    def forward(self, u, i):
        deep = self.mlp(torch.cat([self.user(u), self.item(i)], -1))
        rating = deep + self.user_bias(u) + self.item_bias(i)
        return torch.relu(rating).squeeze(-1)


class Ratings(torch.utils.data.IterableDataset):
    def __init__(self, count, users=100, items=80):
        g = torch.Generator().manual_seed(3)
        self.p, self.q = torch.randn(users, 4, generator=g), torch.randn(items, 4, generator=g)
        self.count = count

    def __iter__(self):
        for _ in range(self.count):
            u, i = torch.randint(0, 100, (1,)).item(), torch.randint(0, 80, (1,)).item()
            yield u, i, (3 + self.p[u] @ self.q[i] * 0.4).clamp(1, 5).item()


if __name__ == "__main__":
    torch.manual_seed(66)
    net = NCF()
    optimizer = torch.optim.Adagrad(net.parameters(), lr=0.02)
    loader = torch.utils.data.DataLoader(Ratings(6400), batch_size=64)
    for n, (u, i, r) in enumerate(loader):
        loss = (net(u, i) - r.float()).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if n % 20 == 0:
            print(n, loss.item())
