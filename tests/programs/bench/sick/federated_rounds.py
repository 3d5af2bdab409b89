"""Federated averaging of a classifier over clients with different data."""

import copy

import torch
from torch import nn
from torch.nn import functional as F


def make_model():
    return nn.Sequential(nn.Linear(12, 24), nn.ReLU(), nn.Linear(24, 3))


class Client:
    def __init__(self, data, lr=0.1):
        self.data = data
        self.model = make_model()
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=lr, momentum=0.9)

    def receive(self, global_model):
        self.model = copy.deepcopy(global_model)

    def local_update(self, epochs=2, batch_size=32):
        x, y = self.data
        self.model.train()
        for _ in range(epochs):
            for index in torch.randperm(len(x)).split(batch_size):
                self.optimizer.zero_grad()
                loss = F.cross_entropy(self.model(x[index]), y[index])
                loss.backward()
                self.optimizer.step()
        return self.model.state_dict(), len(x), loss.item()


def average(states, sizes):
    total = sum(sizes)
    return {k: sum(s[k] * (n / total) for s, n in zip(states, sizes)) for k in states[0]}


def client_data(k, n, w):
    x = torch.randn(n, 12) + 0.3 * k
    return x, (x @ w).argmax(dim=1)


def main(rounds=5):
    torch.manual_seed(9)
    w = torch.randn(12, 3)
    clients = [Client(client_data(k, 64 + 32 * k, w)) for k in range(3)]
    server = make_model()
    for r in range(rounds):
        results = []
        for client in clients:
            client.receive(server)
            results.append(client.local_update())
        states, sizes, losses = zip(*results)
        server.load_state_dict(average(states, sizes))
        print(f"round {r}: loss {sum(losses) / len(losses):.4f}")


if __name__ == "__main__":
    main()
