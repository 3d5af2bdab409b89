import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Series(Dataset):
    def __init__(self, count=256, window=16):
        phase = 6.28 * torch.rand(count, 1)
        speed = 0.2 + 0.4 * torch.rand(count, 1)
        t = torch.arange(window + 1)
        wave = torch.sin(phase + speed * t)
        self.x = torch.stack([wave[:, :-1], torch.cos(phase + speed * t)[:, :-1]], -1)
        self.y = wave[:, -1]

    def __len__(self):
        return len(self.y)

    def __getitem__(self, i):
        return self.x[i], self.y[i]


class Forecaster(nn.Module):
    def __init__(self, features=2, hidden=32):
        super().__init__()
        self.lstm = nn.LSTM(features, hidden, num_layers=1, batch_first=True)
        self.linear = nn.Linear(hidden, 1)

    def forward(self, x):
        out, _ = self.lstm(x)
        return self.linear(out[:, -1]).squeeze(-1)


def train(model, loader, epochs, lr):
    optimizer = torch.optim.Adam(model.parameters(), lr=lr)
    loss_fn = nn.MSELoss()
    for epoch in range(epochs):
        running = 0.0
        for x, y in loader:
            optimizer.zero_grad()
            loss = loss_fn(model(x), y)
            loss.backward()
            optimizer.step()
            running += loss.item() * len(x)
        print(f"epoch {epoch + 1}: {running / len(loader.dataset):.4f}")


if __name__ == "__main__":
    torch.manual_seed(77)
    train(Forecaster(), DataLoader(Series(), batch_size=32, shuffle=True), epochs=6, lr=5e-3)
