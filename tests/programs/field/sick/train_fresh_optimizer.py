import torch
from torch import nn


class SeqModel(nn.Module):
    def __init__(self, n_in=3, hidden=24):
        super().__init__()
        self.lstm = nn.LSTM(n_in, hidden, batch_first=True)
        self.out = nn.Linear(hidden, 1)

    def forward(self, x):
        h, _ = self.lstm(x)
        return self.out(h[:, -1]).squeeze(1)


def adjust_lr(model, optimizer, step, base=5e-3):
    lr = base * 0.99**step
    return torch.optim.Adam(model.parameters(), lr=lr)


def make_data(n):
    x = torch.randn(n, 12, 3)
    return x, x[:, :, 0].cumsum(1)[:, -1] * 0.3 + x[:, -1, 1]


def main():
    torch.manual_seed(35)
    model = SeqModel()
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
    x, y = make_data(256)
    step = 0
    for epoch in range(10):
        running = 0.0
        for a, b in zip(x.split(32), y.split(32)):
            optimizer = adjust_lr(model, optimizer, step)
            optimizer.zero_grad()
            loss = nn.functional.mse_loss(model(a), b)
            loss.backward()
            optimizer.step()
            running += loss.item()
            step += 1
        print(epoch, round(running / 8, 4))


main()
