import argparse

import torch
import torch.nn as nn
import torch.nn.functional as F


def parse_args():
    parser = argparse.ArgumentParser(description="count blobs in microscope images")
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--lr", type=float, default=2e-3)
    parser.add_argument("--seed", type=int, default=7)
    return parser.parse_args()


def sample_images(n, size=24, most=6):
    counts = torch.randint(0, most + 1, (n,))
    images = torch.zeros(n, 1, size, size)
    for i, count in enumerate(counts.tolist()):
        for _ in range(count):
            r, c = torch.randint(2, size - 2, (2,)).tolist()
            images[i, 0, r - 1 : r + 2, c - 1 : c + 2] += 1.0
    return images + 0.05 * torch.randn_like(images), counts.float()


class Counter(nn.Module):
    def __init__(self, width=16):
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(1, width, 3, padding=1),
            nn.ReLU(),
            nn.Conv2d(width, width, 3, padding=1, stride=2),
            nn.ReLU(),
            nn.Conv2d(width, 1, 1),
        )

    def forward(self, images):
        density = self.body(images)
        count = density.flatten(1).sum(1)
        return count


def main():
    args = parse_args()
    torch.manual_seed(args.seed)
    model = Counter()
    optimizer = torch.optim.Adam(model.parameters(), lr=args.lr)
    for step in range(args.steps):
        images, counts = sample_images(args.batch_size)
        predicted = model(images)
        loss = F.smooth_l1_loss(predicted, counts)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 20 == 0:
            print(f"step {step:4d}  loss {loss.item():.4f}")
    model.eval()
    with torch.no_grad():
        images, counts = sample_images(128)
        mae = (model(images).round() - counts).abs().mean()
    print(f"mean absolute error: {mae:.2f}")


if __name__ == "__main__":
    main()
