import argparse

import torch
from torch import nn
from torch.optim import SGD
from torch.optim.lr_scheduler import LambdaLR


def main(args):
    torch.manual_seed(args.seed)
    backbone = nn.Sequential(nn.Linear(16, 64), nn.ReLU(), nn.Linear(64, 32), nn.ReLU())
    classifier = nn.Linear(32, 5)
    optimizer = SGD([
        {"params": backbone.parameters()},
        {"params": classifier.parameters()},
    ], args.lr, momentum=args.momentum, nesterov=True)
    lr_scheduler = LambdaLR(optimizer, lambda x: (1.0 + args.lr_gamma * float(x)) ** (-args.lr_decay))

    x = torch.randn(400, 16)
    y = (x @ torch.randn(16, 5)).argmax(1)
    for epoch in range(args.epochs):
        correct = 0
        for rows in torch.randperm(len(x)).split(args.batch_size):
            logits = classifier(backbone(x[rows]))
            loss = nn.functional.cross_entropy(logits, y[rows])
            correct += (logits.argmax(1) == y[rows]).sum().item()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            lr_scheduler.step()
        print(f"epoch {epoch} loss {loss.item():.3f} acc {correct / len(x):.3f} lr {lr_scheduler.get_last_lr()[0]:.2e}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--lr", type=float, default=0.01)
    parser.add_argument("--lr-gamma", type=float, default=0.001)
    parser.add_argument("--lr-decay", type=float, default=0.75)
    parser.add_argument("--momentum", type=float, default=0.9)
    parser.add_argument("--epochs", type=int, default=8)
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--seed", type=int, default=0)
    main(parser.parse_args())
