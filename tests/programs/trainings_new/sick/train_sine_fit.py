import argparse
import torch
from torch import nn

parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int, default=80)
parser.add_argument("--lr", type=float, default=1e-2)
args = parser.parse_args()


def make_data(n=128):
    x = torch.linspace(-2, 2, n).unsqueeze(1)
    return x, torch.sin(2 * x)


def main():
    torch.manual_seed(2)
    x, y = make_data()
    model = nn.Sequential(nn.Linear(1, 32), nn.Tanh(), nn.Linear(32, 1))
    optimizer = torch.optim.Adam(model.parameters(), lr=args.lr)
    for step in range(args.steps):
        loss = nn.functional.mse_loss(model(x), y)
        loss.backward()
        optimizer.zero_grad()
        optimizer.step()
        if step % 20 == 0 or step == args.steps - 1:
            print(step, round(loss.item(), 5))


if __name__ == "__main__":
    main()
