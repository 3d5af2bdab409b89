import torch
import torch.nn.functional as F
from torch import nn


class MLP(nn.Module):
    def __init__(self, hidden=64):
        super().__init__()
        self.fc1 = nn.Linear(10, hidden)
        self.fc2 = nn.Linear(hidden, 1)

    def forward(self, x):
        return self.fc2(F.relu(self.fc1(x)))


@torch.no_grad()
def prune(model, keep):
    importance = model.fc1.weight.norm(dim=1) * model.fc2.weight.norm(dim=0)
    index = importance.topk(keep).indices
    fc1, fc2 = nn.Linear(10, keep), nn.Linear(keep, 1)
    fc1.weight.copy_(model.fc1.weight[index])
    fc1.bias.copy_(model.fc1.bias[index])
    fc2.weight.copy_(model.fc2.weight[:, index])
    fc2.bias.copy_(model.fc2.bias)
    model.fc1, model.fc2 = fc1, fc2


def train(model, optimizer, steps):
    for step in range(steps):
        x = torch.randn(64, 10)
        y = x[:, :1].sin() + x[:, 1:2] * x[:, 2:3]
        loss = F.mse_loss(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return loss.item()


def main():
    torch.manual_seed(37)
    model = MLP()
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
    print("dense", train(model, optimizer, 50))
    for keep in (48, 32):
        prune(model, keep)
        optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
        print(keep, train(model, optimizer, 30))


if __name__ == "__main__":
    main()
