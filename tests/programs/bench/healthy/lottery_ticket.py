"""Iterative magnitude pruning with rewinding."""

import copy

import torch
from torch import nn
from torch.nn import functional as F


class Ticket:
    def __init__(self, model):
        self.model = model
        self.initial = copy.deepcopy(model.state_dict())
        self.masks = {n: torch.ones_like(p) for n, p in model.named_parameters() if p.dim() > 1}
        for name, p in model.named_parameters():
            if name in self.masks:
                p.register_hook(lambda grad, name=name: grad * self.masks[name])

    def prune(self, fraction):
        for name, p in self.model.named_parameters():
            if name not in self.masks:
                continue
            alive = p[self.masks[name] > 0].abs()
            threshold = alive.kthvalue(max(1, int(fraction * alive.numel()))).values
            self.masks[name] *= (p.abs() > threshold).float()

    def rewind(self):
        self.model.load_state_dict(self.initial)
        self.apply()

    @torch.no_grad()
    def apply(self):
        for name, p in self.model.named_parameters():
            if name in self.masks:
                p.mul_(self.masks[name])


def train(ticket, x, y, epochs=3):
    optimizer = torch.optim.SGD(ticket.model.parameters(), lr=0.1, momentum=0.9)
    for _ in range(epochs):
        for index in torch.randperm(len(x)).split(32):
            optimizer.zero_grad()
            loss = F.cross_entropy(ticket.model(x[index]), y[index])
            loss.backward()
            optimizer.step()
            ticket.apply()
    return loss.item()


if __name__ == "__main__":
    torch.manual_seed(7)
    x = torch.randn(256, 16)
    y = (x[:, :4] @ torch.randn(4, 3)).argmax(1)
    ticket = Ticket(nn.Sequential(nn.Linear(16, 48), nn.ReLU(), nn.Linear(48, 3)))
    for round_ in range(4):
        loss = train(ticket, x, y)
        left = sum(m.sum() for m in ticket.masks.values()) / sum(m.numel() for m in ticket.masks.values())
        print(f"round {round_}: loss {loss:.4f} weights left {left.item():.2f}")
        ticket.prune(0.5)
        ticket.rewind()
