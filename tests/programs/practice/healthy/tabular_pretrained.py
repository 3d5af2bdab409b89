import torch
from torch import nn

CARDINALITIES = [7, 12, 4]


class TabularNet(nn.Module):
    def __init__(self, tables, continuous, hidden=48):
        super().__init__()
        self.embeddings = nn.ModuleList(
            nn.Embedding.from_pretrained(table, freeze=False) for table in tables
        )
        width = sum(table.size(1) for table in tables) + continuous
        self.norm = nn.BatchNorm1d(continuous)
        self.layers = nn.Sequential(
            nn.Linear(width, hidden), nn.ReLU(), nn.Dropout(0.1), nn.Linear(hidden, hidden), nn.ReLU(),
            nn.Linear(hidden, 1),
        )

    def forward(self, categories, values):
        parts = [emb(categories[:, i]) for i, emb in enumerate(self.embeddings)]
        return self.layers(torch.cat([*parts, self.norm(values)], 1)).squeeze(1)


def make_data(n):
    categories = torch.stack([torch.randint(0, c, (n,)) for c in CARDINALITIES], 1)
    values = torch.randn(n, 3)
    effect = torch.randn(12)
    y = effect[categories[:, 1]] + values[:, 0] - 0.5 * (categories[:, 2] == 1) + 0.1 * torch.randn(n)
    return categories, values, y


def main():
    torch.manual_seed(13)
    categories, values, y = make_data(512)
    tables = [torch.randn(c, 6) * 0.1 for c in CARDINALITIES]
    model = TabularNet(tables, continuous=3)
    optimizer = torch.optim.AdamW([
        {"params": model.embeddings.parameters(), "lr": 1e-2},
        {"params": model.norm.parameters()},
        {"params": model.layers.parameters()},
    ], lr=3e-3)
    for epoch in range(6):
        for batch in torch.randperm(len(y)).split(64):
            loss = nn.functional.mse_loss(model(categories[batch], values[batch]), y[batch])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        print(epoch, round(loss.item(), 4))


if __name__ == "__main__":
    main()
