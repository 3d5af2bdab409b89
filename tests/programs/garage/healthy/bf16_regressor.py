import argparse

import torch
from torch import nn


def get_args():
    parser = argparse.ArgumentParser(description="Fit a tabular regressor.")
    parser.add_argument("--width", type=int, default=64)
    parser.add_argument("--lr", type=float, default=1e-5)
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--dtype", default="bfloat16")
    return parser.parse_args([])


class Residual(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.up = nn.Linear(width, 2 * width)
        self.down = nn.Linear(2 * width, width)

    def forward(self, x):
        return x + self.down(torch.nn.functional.silu(self.up(self.norm(x))))


class Regressor(nn.Module):
    def __init__(self, features, width):
        super().__init__()
        self.stem = nn.Linear(features, width)
        self.blocks = nn.ModuleList([Residual(width) for _ in range(3)])
        self.head = nn.Linear(width, 1)

    def forward(self, x):
        x = self.stem(x)
        for block in self.blocks:
            x = block(x)
        return self.head(x).squeeze(-1)


def make_data(count, features):
    x = torch.randn(count, features)
    weights = torch.randn(features)
    y = (x @ weights).tanh() + 0.1 * torch.randn(count)
    return x, y


def main():
    args = get_args()
    torch.manual_seed(0)
    x, y = make_data(1024, 10)
    dtype = getattr(torch, args.dtype)
    model = Regressor(10, args.width)
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr, betas=(0.9, 0.95))
    for step in range(args.steps):
        index = torch.randint(0, len(x), (args.batch_size,))
        inputs, targets = x[index], y[index]
        with torch.autocast("cpu", dtype=dtype):
            prediction = model(inputs)
        loss = nn.functional.mse_loss(prediction.float(), targets)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        if step % 10 == 0:
            print(f"step {step:3d} loss {loss.item():.4f}")


main()
