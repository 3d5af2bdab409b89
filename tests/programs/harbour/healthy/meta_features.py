"""Two heads are trained in turn on features of one backbone; features are computed on demand."""

import torch
import torch.nn.functional as F
from torch import nn


class Episode:
    def __init__(self, backbone, images, labels, rotations):
        self.backbone = backbone
        self.images, self.labels, self.rotations = images, labels, rotations
        self._features = None

    @property
    def features(self):
        if self._features is None or torch.is_grad_enabled():
            self._features = self.backbone(self.images)
        return self._features


class Heads(nn.Module):
    def __init__(self, width, classes):
        super().__init__()
        self.classify = nn.Linear(width, classes)
        self.rotate = nn.Linear(width, 4)

    def losses(self, episode):
        yield "class", lambda: F.cross_entropy(self.classify(episode.features), episode.labels)
        yield "rotation", lambda: 0.3 * F.cross_entropy(self.rotate(episode.features), episode.rotations)


def episodes(backbone, count):
    centres = torch.randn(5, 1, 10, 10)
    for _ in range(count):
        labels = torch.randint(0, 5, (20,))
        turns = torch.randint(0, 4, (20,))
        images = centres[labels] + 0.5 * torch.randn(20, 1, 10, 10)
        images = torch.stack([torch.rot90(image, int(turn), (1, 2)) for image, turn in zip(images, turns)])
        yield Episode(backbone, images, labels, turns)


def main():
    torch.manual_seed(0)
    backbone = nn.Sequential(nn.Conv2d(1, 8, 3, 2), nn.ReLU(), nn.Flatten(), nn.Linear(128, 32), nn.ReLU())
    heads = Heads(32, 5)
    optimizer = torch.optim.Adam([*backbone.parameters(), *heads.parameters()], lr=2e-3)
    for episode in episodes(backbone, 25):
        total = 0.0
        for name, loss_of in heads.losses(episode):
            loss = loss_of()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.item()
    print(f"{total:.3f}")


if __name__ == "__main__":
    main()
