import argparse

import torch
import torch.nn as nn
import torch.nn.functional as F


class GraphBatch:
    def __init__(self, nodes, adjacency, label):
        self.nodes, self.adjacency, self.label = nodes, adjacency, label

    @property
    def degree(self):
        return self.adjacency.sum(1)


def weighted_mean(values, weight):
    total = weight.sum(1, keepdim=True)
    mean = weight @ values / torch.where(total > 0, total, 1.0)
    return torch.where(total > 0, mean, 0.0)


class AttentionLayer(nn.Module):
    def __init__(self, inputs, outputs):
        super().__init__()
        self.value = nn.Linear(inputs, outputs)
        self.own = nn.Linear(inputs, outputs)
        self.send = nn.Linear(inputs, 1)
        self.receive = nn.Linear(inputs, 1)

    def forward(self, nodes, adjacency):
        score = F.leaky_relu(self.receive(nodes) + self.send(nodes).T, 0.2)
        weight = adjacency * torch.exp(score - score.detach().amax(1, keepdim=True))
        return self.own(nodes) + weighted_mean(self.value(nodes), weight)


class Network(nn.Module):
    def __init__(self, inputs=8, width=24, classes=3):
        super().__init__()
        self.first = AttentionLayer(inputs, width)
        self.second = AttentionLayer(width, classes)

    def forward(self, batch):
        return self.second(F.elu(self.first(batch.nodes, batch.adjacency)), batch.adjacency)


def sample(generator, count=80, density=0.02):
    nodes = torch.randn(count, 8, generator=generator)
    adjacency = (torch.rand(count, count, generator=generator) < density).float()
    return GraphBatch(nodes, adjacency, nodes[:, :3].argmax(1))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=30)
    args = parser.parse_args()
    torch.manual_seed(0)
    generator = torch.Generator().manual_seed(1)
    model = Network()
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
    for step in range(args.steps):
        batch = sample(generator)
        loss = F.cross_entropy(model(batch), batch.label)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 10 == 0:
            print(step, loss.item(), int((batch.degree == 0).sum()))


if __name__ == "__main__":
    main()
