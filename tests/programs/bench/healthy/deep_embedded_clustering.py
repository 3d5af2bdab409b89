"""Deep embedded clustering with Student-t soft assignments."""

import torch
from torch import nn
from torch.nn import functional as F


class ClusterAssignment(nn.Module):
    def __init__(self, clusters, dim, alpha=1.0):
        super().__init__()
        self.alpha = alpha
        self.cluster_centers = nn.Parameter(nn.init.xavier_uniform_(torch.zeros(clusters, dim)))

    def forward(self, z):
        squared = (z.unsqueeze(1) - self.cluster_centers).pow(2).sum(-1)
        q = (1.0 + squared / self.alpha).reciprocal().pow((self.alpha + 1) / 2)
        return q / q.sum(dim=1, keepdim=True)


class DEC(nn.Module):
    def __init__(self, d_in=16, latent=4, clusters=3):
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(d_in, 32), nn.ReLU(), nn.Linear(32, latent))
        self.assignment = ClusterAssignment(clusters, latent)

    def forward(self, x):
        return self.assignment(self.encoder(x))


def target_distribution(q):
    weight = q.pow(2) / q.sum(0)
    return (weight.t() / weight.sum(1)).t()


def kmeans(z, clusters, iterations=10):
    centers = z[torch.randperm(len(z))[:clusters]].clone()
    for _ in range(iterations):
        label = torch.cdist(z, centers).argmin(1)
        for k in range(clusters):
            if (label == k).any():
                centers[k] = z[label == k].mean(0)
    return centers


def train(model, data, epochs=6, batch_size=64):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    with torch.no_grad():
        centers = kmeans(model.encoder(data), len(model.assignment.cluster_centers))
    with torch.no_grad():
        model.assignment.cluster_centers.copy_(centers)
    for epoch in range(epochs):
        total = 0.0
        for batch in data[torch.randperm(len(data))].split(batch_size):
            q = model(batch)
            p = target_distribution(q).detach()
            loss = F.kl_div(q.log(), p, reduction="batchmean")
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.item()
        print(f"epoch {epoch} kl {total:.5f}")


if __name__ == "__main__":
    torch.manual_seed(23)
    means = 2 * torch.randn(3, 16)
    points = means[torch.randint(3, (192,))] + torch.randn(192, 16)
    train(DEC(), points)
