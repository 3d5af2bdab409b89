import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class CausalConv(nn.Module):
    def __init__(self, inputs, outputs, dilation):
        super().__init__()
        self.pad = 2 * dilation
        self.conv = nn.Conv1d(inputs, outputs, 3, dilation=dilation)
        self.skip = nn.Conv1d(inputs, outputs, 1) if inputs != outputs else nn.Identity()

    def forward(self, x):
        y = self.conv(F.pad(x, (self.pad, 0)))
        return F.gelu(y) + self.skip(x)


class TCN(nn.Module):
    def __init__(self, width=16):
        super().__init__()
        self.blocks = nn.Sequential(CausalConv(1, width, 1), CausalConv(width, width, 2), CausalConv(width, width, 4))
        self.readout = nn.Linear(width, 1)

    def forward(self, x):
        h = self.blocks(x)[..., -1]
        return torch.relu(self.readout(h))


def windows(length=600, window=24):
    t = torch.arange(length) * 0.2
    series = torch.sin(t) + 0.4 * torch.sin(2.7 * t) + 0.1 * torch.randn(length)
    series = (series - series.mean()) / series.std()
    frames = series.unfold(0, window + 1, 1)
    return TensorDataset(frames[:, None, :-1].clone(), frames[:, -1:].clone())


def main():
    torch.manual_seed(10)
    loader = DataLoader(windows(), batch_size=64, shuffle=True)
    model = TCN()
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    for epoch in range(6):
        total = 0.0
        for x, y in loader:
            loss = F.mse_loss(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.item()
        print(epoch, round(total / len(loader), 4))


if __name__ == "__main__":
    main()
