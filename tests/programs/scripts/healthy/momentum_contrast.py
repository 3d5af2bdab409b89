import copy

import torch
import torch.nn as nn
import torch.nn.functional as F


class Moco(nn.Module):
    def __init__(self, dim=16, queue=256, m=0.95, t=0.2):
        super().__init__()
        self.m, self.t = m, t
        self.encoder_q = nn.Sequential(nn.Linear(24, 64), nn.ReLU(), nn.Linear(64, 32), nn.ReLU())
        self.head_q = nn.Sequential(nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, dim))
        self.encoder_k = copy.deepcopy(self.encoder_q)
        self.head_k = copy.deepcopy(self.head_q)
        for p in list(self.encoder_k.parameters()) + list(self.head_k.parameters()):
            p.requires_grad = False
        self.register_buffer("queue", F.normalize(torch.randn(dim, queue), dim=0))
        self.pointer = 0

    @torch.no_grad()
    def momentum_update(self):
        for q, k in zip(self.encoder_q.parameters(), self.encoder_k.parameters()):
            k.data = k.data * self.m + q.data * (1 - self.m)
        for q, k in zip(self.head_q.parameters(), self.head_k.parameters()):
            k.data = k.data * self.m + q.data * (1 - self.m)

    @torch.no_grad()
    def enqueue(self, keys):
        n = keys.shape[0]
        self.queue[:, self.pointer : self.pointer + n] = keys.T
        self.pointer = (self.pointer + n) % self.queue.shape[1]

    def forward(self, a, b):
        q = F.normalize(self.head_q(self.encoder_q(a)), dim=1)
        with torch.no_grad():
            self.momentum_update()
            k = F.normalize(self.head_k(self.encoder_k(b)), dim=1)
        positive = (q * k).sum(1, keepdim=True)
        negative = q @ self.queue.clone()
        logits = torch.cat([positive, negative], 1) / self.t
        self.enqueue(k)
        return F.cross_entropy(logits, torch.zeros(len(a), dtype=torch.long))


def views(n):
    x = torch.randn(n, 24)
    return x + 0.1 * torch.randn_like(x), x + 0.1 * torch.randn_like(x)


def main():
    torch.manual_seed(8)
    model = Moco()
    optimizer = torch.optim.SGD([p for p in model.parameters() if p.requires_grad], lr=0.1, momentum=0.9, weight_decay=1e-4)
    for step in range(150):
        loss = model(*views(32))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 30 == 0:
            print(step, round(loss.item(), 3))


if __name__ == "__main__":
    main()
