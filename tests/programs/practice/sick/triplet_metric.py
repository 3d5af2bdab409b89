import torch
import torch.nn.functional as F
from torch import nn


class Embedder(nn.Module):
    def __init__(self, inputs=16, width=8):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(inputs, 48), nn.ReLU(), nn.Linear(48, width))

    def forward(self, x):
        return F.normalize(self.body(x), dim=1)


def distance(a, b):
    return (a - b).pow(2).sum(1).sqrt()


def triplet_loss(anchor, positive, negative, margin=0.3):
    return F.relu(distance(anchor, positive) - distance(anchor, negative) + margin).mean()


def sample_triplets(data, labels, n):
    index = torch.randint(0, len(data), (n,))
    positive = torch.empty_like(index)
    negative = torch.empty_like(index)
    for i, anchor in enumerate(index):
        same = torch.nonzero(labels == labels[anchor]).flatten()
        other = torch.nonzero(labels != labels[anchor]).flatten()
        positive[i] = same[torch.randint(0, len(same), (1,))]
        negative[i] = other[torch.randint(0, len(other), (1,))]
    return data[index], data[positive], data[negative]


def main():
    torch.manual_seed(17)
    labels = torch.arange(60) % 10
    centres = torch.randn(10, 16)
    data = centres[labels] + 0.4 * torch.randn(60, 16)
    model = Embedder()
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    for step in range(60):
        anchor, positive, negative = sample_triplets(data, labels, 32)
        loss = triplet_loss(model(anchor), model(positive), model(negative))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 20 == 0:
            print(step, loss.item())


if __name__ == "__main__":
    main()
