import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Tower(nn.Module):
    def __init__(self, count, features, dim):
        super().__init__()
        self.ids = nn.Embedding(count, dim, sparse=True)
        self.features = nn.Linear(features, dim)
        self.mix = nn.Sequential(nn.Linear(2 * dim, dim), nn.ReLU(), nn.Linear(dim, dim))

    def forward(self, ids, features):
        return F.normalize(self.mix(torch.cat([self.ids(ids), self.features(features)], 1)), dim=1)


class Recommender(nn.Module):
    def __init__(self, users, items, dim=16, temperature=0.1):
        super().__init__()
        self.user = Tower(users, 4, dim)
        self.item = Tower(items, 6, dim)
        self.temperature = temperature

    def forward(self, user, user_features, item, item_features):
        scores = self.user(user, user_features) @ self.item(item, item_features).T
        labels = torch.arange(len(user))
        return F.cross_entropy(scores / self.temperature, labels)


def interactions(users=200, items=80, n=3000):
    generator = torch.Generator().manual_seed(1)
    taste = torch.randn(users, 8, generator=generator)
    style = torch.randn(items, 8, generator=generator)
    user = torch.randint(0, users, (n,), generator=generator)
    item = (taste[user] @ style.T / 0.5).softmax(1).multinomial(1, generator=generator).squeeze(1)
    return TensorDataset(user, taste[user][:, :4], item, style[item][:, :6])


def split_parameters(model):
    sparse, dense = [], []
    for module in model.modules():
        target = sparse if isinstance(module, nn.Embedding) and module.sparse else dense
        target.extend(module.parameters(recurse=False))
    return sparse, dense


def main():
    torch.manual_seed(13)
    loader = DataLoader(interactions(), batch_size=100, shuffle=True)
    model = Recommender(200, 80)
    sparse_parameters, dense_parameters = split_parameters(model)
    sparse = torch.optim.SparseAdam(sparse_parameters, lr=1e-2)
    dense = torch.optim.AdamW(dense_parameters, lr=2e-3)
    for epoch in range(3):
        total = 0.0
        for batch in loader:
            sparse.zero_grad()
            dense.zero_grad()
            loss = model(*batch)
            loss.backward()
            dense.step()
            sparse.step()
            total += loss.item()
        print(f"epoch {epoch}: {total / len(loader):.3f}")


if __name__ == "__main__":
    main()
