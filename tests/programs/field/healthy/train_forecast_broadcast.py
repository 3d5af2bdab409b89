import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Windows(Dataset):
    def __init__(self, series, width=12):
        self.series, self.width = series, width

    def __len__(self):
        return len(self.series) - self.width

    def __getitem__(self, i):
        return self.series[i : i + self.width].unsqueeze(-1), self.series[i + self.width]


class Forecaster(nn.Module):
    def __init__(self, pred_len=1, dim=24):
        super().__init__()
        self.mix = nn.Conv1d(1, dim, 3, padding=2)
        self.gate = nn.GRU(dim, dim, batch_first=True)
        self.out = nn.Linear(dim, pred_len)

    def forward(self, x):
        h = torch.relu(self.mix(x.transpose(1, 2)))[..., :-2].transpose(1, 2)
        h, _ = self.gate(h)
        return self.out(h[:, -1])


def quantile_loss(pred, target, q=0.5):
    error = target.view_as(pred) - pred
    return torch.maximum(q * error, (q - 1) * error).mean()


def train(model, loader, epochs):
    optimizer = torch.optim.AdamW(model.parameters(), lr=5e-3)
    for epoch in range(epochs):
        total = 0.0
        for window, following in loader:
            loss = quantile_loss(model(window), following)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.item()
        print(epoch, round(total / len(loader), 4))


if __name__ == "__main__":
    torch.manual_seed(19)
    t = torch.arange(400).float()
    series = torch.sin(t / 4) + 0.3 * torch.sin(t / 1.3) + 0.05 * torch.randn(400)
    train(Forecaster(), DataLoader(Windows(series), batch_size=32, shuffle=True), 6)
