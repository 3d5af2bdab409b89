import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Houses(Dataset):
    COLUMNS = ("rooms", "area", "age", "distance", "garden")

    def __init__(self, n=800):
        generator = torch.Generator().manual_seed(12)
        rooms = torch.randint(1, 8, (n,), generator=generator).float()
        area = 30 * rooms + 20 * torch.rand(n, generator=generator)
        age = 80 * torch.rand(n, generator=generator)
        distance = 25 * torch.rand(n, generator=generator)
        garden = (torch.rand(n, generator=generator) < 0.4).float()
        noise = 15_000 * torch.randn(n, generator=generator)
        self.price = 3_000 * area - 900 * age - 4_000 * distance + 40_000 * garden + 90_000 + noise
        table = torch.stack([rooms, area, age, distance, garden], dim=1)
        self.table = (table - table.mean(dim=0)) / table.std(dim=0)
        self.centre, self.spread = self.price.mean(), self.price.std()

    def __len__(self):
        return len(self.table)

    def __getitem__(self, i):
        return self.table[i], (self.price[i] - self.centre) / self.spread


class PriceModel(nn.Module):
    def __init__(self, inputs, width=64):
        super().__init__()
        self.layers = nn.Sequential(
            nn.Linear(inputs, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(),
            nn.Linear(width, 1),
        )

    def forward(self, x):
        return self.layers(x).squeeze(-1)


def train_epoch(model, loader, criterion, optimizer):
    model.train()
    total = 0.0
    for table, price in loader:
        loss = criterion(model(table), price)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        total += loss.item()
    return total / len(loader)


def main():
    torch.manual_seed(27)
    data = Houses()
    loader = DataLoader(data, batch_size=32, shuffle=True)
    model = PriceModel(len(Houses.COLUMNS))
    criterion = nn.MSELoss()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    for epoch in range(4):
        print(f"epoch {epoch}: {train_epoch(model, loader, criterion, optimizer):.4g}")


if __name__ == "__main__":
    main()
