import argparse
import torch
from torch import nn


def parse():
    parser = argparse.ArgumentParser()
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--lr", type=float, default=1e-1)
    return parser.parse_args()


args = parse()
torch.manual_seed(36)
model = nn.Sequential(nn.Conv1d(2, 8, 3), nn.ReLU(), nn.AdaptiveAvgPool1d(1), nn.Flatten(), nn.Linear(8, 2))
optimizer = torch.optim.SGD(model.parameters(), lr=args.lr, momentum=0.9)
for step in range(90):
    x = torch.randn(args.batch_size, 2, 16)
    y = (x[:, 0].mean(1) > 0).long()
    x[:, 0] += y[:, None]
    loss = nn.functional.cross_entropy(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 30 == 29:
        print(step, loss.item())
