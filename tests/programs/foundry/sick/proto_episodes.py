"""Prototypical networks on clusters in a noisy space."""
import torch
import torch.nn.functional as F
from torch import nn


class Embedder(nn.Module):
    def __init__(self, n_in=20, width=48, n_out=16):
        super().__init__()
        self.first, self.second = nn.Linear(n_in, width), nn.Linear(width, n_out)
        self.norm = nn.LayerNorm(width)

    def forward(self, x):
        return self.second(F.relu(self.norm(self.first(x))))


class Episodes:
    def __init__(self, classes=30, n_in=20, seed=23):
        self.g = torch.Generator().manual_seed(seed)
        basis = torch.randn(4, n_in, generator=self.g)
        self.centres = torch.randn(classes, 4, generator=self.g) @ basis

    def draw(self, way=5, shot=3, query=6):
        chosen = torch.randperm(len(self.centres), generator=self.g)[:way]
        n = shot + query
        x = self.centres[chosen].repeat_interleave(n, 0)
        x = x + 1.5 * torch.randn(x.shape, generator=self.g)
        x = x.view(way, n, -1)
        return x[:, :shot], x[:, shot:]


def episode_loss(net, support, query):
    way, n_query, _ = query.shape
    prototypes = net(support.flatten(0, 1)).view(way, -1, 16).mean(1)
    embedded = net(query.flatten(0, 1))
    logits = -torch.cdist(embedded, prototypes).pow(2)
    label = torch.arange(way).repeat_interleave(n_query)
    return F.cross_entropy(logits, label)


def meta_batch(net, episodes, n):
    losses = []
    for _ in range(n):
        losses.append(episode_loss(net, *episodes.draw()))
    return torch.tensor(losses, requires_grad=True).mean()


def main():
    torch.manual_seed(123)
    net, episodes = Embedder(), Episodes()
    optimizer = torch.optim.Adam(net.parameters(), lr=1e-3)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, step_size=8, gamma=0.5)
    for step in range(20):
        loss = meta_batch(net, episodes, 4)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        scheduler.step()
        if step % 5 == 0:
            print(f"{step} {loss.item():.4f}")


if __name__ == "__main__":
    main()
