import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

EPOCHS = 6


def loader():
    x = torch.randn(320, 12)
    y = (x[:, :4].sum(1) > 0).long()
    return DataLoader(TensorDataset(x, y), batch_size=32, shuffle=True)


def main():
    torch.manual_seed(3)
    data = loader()
    net = nn.Sequential(nn.Linear(12, 32), nn.ReLU(), nn.Linear(32, 2))
    optimizer = torch.optim.Adam(net.parameters(), lr=1e-2)
    decay = torch.optim.lr_scheduler.PolynomialLR(optimizer, total_iters=EPOCHS * len(data), power=1.0)
    for epoch in range(EPOCHS):
        total = 0.0
        for x, y in data:
            loss = nn.functional.cross_entropy(net(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            decay.step()
            total += loss.item()
        print(epoch, total / len(data))


main()
