import argparse

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class ConvNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(1, 8, 3, padding=1)
        self.conv2 = nn.Conv2d(8, 16, 3, padding=1)
        self.norm = nn.GroupNorm(4, 16)
        self.fc = nn.Linear(16 * 9, 4)

    def forward(self, x):
        x = F.max_pool2d(F.relu(self.conv1(x)), 2)
        x = F.max_pool2d(F.relu(self.norm(self.conv2(x))), 2)
        return self.fc(x.flatten(1))


def dataset(n):
    labels = torch.randint(0, 4, (n,))
    images = 0.5 * torch.randn(n, 1, 12, 12)
    for image, label in zip(images, labels):
        row, col = divmod(int(label), 2)
        image[0, 6 * row : 6 * row + 6, 6 * col : 6 * col + 6] += 1
    return TensorDataset(images, labels)


def train(args):
    torch.manual_seed(args.seed)
    model = ConvNet()
    loader = DataLoader(dataset(384), batch_size=args.micro_batch, shuffle=True)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    for epoch in range(args.epochs):
        for i, (images, labels) in enumerate(loader):
            optimizer.zero_grad()
            loss = F.cross_entropy(model(images), labels) / args.accumulate
            loss.backward()
            if (i + 1) % args.accumulate == 0:
                optimizer.step()
        print(epoch, loss.item() * args.accumulate)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--micro-batch", type=int, default=8)
    parser.add_argument("--accumulate", type=int, default=4)
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--seed", type=int, default=0)
    train(parser.parse_args())
