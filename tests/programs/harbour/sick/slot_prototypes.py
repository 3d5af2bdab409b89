"""Few-shot classification: support images and query images have encoders of their own."""

import argparse
from collections import defaultdict
from dataclasses import dataclass, field

import torch
import torch.nn.functional as F
from torch import nn


def encoder(width):
    return nn.Sequential(
        nn.Conv2d(1, 8, 3, stride=2, padding=1),
        nn.ReLU(),
        nn.Conv2d(8, 16, 3, stride=2, padding=1),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(16 * 9, width),
    )


@dataclass
class PrototypeStore:
    shots: dict = field(default_factory=lambda: defaultdict(list))

    def add(self, embedding, label):
        self.shots[int(label)].append(embedding.tolist())

    @property
    def matrix(self):
        rows = []
        for label in sorted(self.shots):
            shots = self.shots[label]
            rows.append(torch.tensor(shots).mean(0))
        return torch.stack(rows)


class Episodes:
    def __init__(self, ways, shots, queries, seed):
        self.ways, self.shots, self.queries = ways, shots, queries
        self.generator = torch.Generator().manual_seed(seed)

    def draw(self):
        base = torch.randn(self.ways, 1, 12, 12, generator=self.generator)
        def some(count):
            noise = torch.randn(self.ways, count, 1, 12, 12, generator=self.generator)
            images = (base[:, None] + 0.5 * noise).flatten(0, 1)
            return images, torch.arange(self.ways).repeat_interleave(count)
        return some(self.shots), some(self.queries)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--episodes", type=int, default=40)
    parser.add_argument("--width", type=int, default=32)
    args = parser.parse_args()
    torch.manual_seed(0)
    support_net, query_net = encoder(args.width), encoder(args.width)
    optimizer = torch.optim.Adam([*support_net.parameters(), *query_net.parameters()], lr=3e-3)
    episodes = Episodes(5, 3, 4, seed=1)
    for episode in range(args.episodes):
        (support, support_labels), (query, query_labels) = episodes.draw()
        store = PrototypeStore()
        for embedding, label in zip(support_net(support), support_labels):
            store.add(embedding, label)
        logits = -torch.cdist(query_net(query), store.matrix).square()
        loss = F.cross_entropy(logits, query_labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if episode % 10 == 0:
            print(episode, f"{loss.item():.3f}")


if __name__ == "__main__":
    main()
