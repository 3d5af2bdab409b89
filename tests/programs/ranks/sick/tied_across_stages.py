from datetime import timedelta

import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional as F

torch.set_num_threads(1)
dist.init_process_group("gloo", timeout=timedelta(seconds=15))
rank, world = dist.get_rank(), dist.get_world_size()
class FirstStage(nn.Module):
    def __init__(self, embedding):
        super().__init__()
        self.embedding = embedding
        self.layer = nn.Linear(12, 12)

    def forward(self, tokens):
        return torch.tanh(self.layer(self.embedding(tokens)))


class LastStage(nn.Module):
    def __init__(self, embedding):
        super().__init__()
        self.embedding = embedding
        self.layer = nn.Linear(12, 12)

    def forward(self, hidden):
        return F.linear(torch.tanh(self.layer(hidden)), self.embedding.weight)


torch.manual_seed(0)
embedding = nn.Embedding(30, 12)
stage = FirstStage(embedding) if rank == 0 else LastStage(embedding)
optimizer = torch.optim.SGD(stage.parameters(), lr=0.1)
draw = torch.Generator().manual_seed(5)
for step in range(24):
    tokens = torch.randint(0, 30, (16,), generator=draw)
    optimizer.zero_grad()
    if rank == 0:
        hidden = stage(tokens)
        dist.send(hidden.detach(), 1)
        grad = torch.empty_like(hidden)
        dist.recv(grad, 1)
        hidden.backward(grad)
        loss = torch.zeros(())
    else:
        hidden = torch.empty(16, 12)
        dist.recv(hidden, 0)
        hidden.requires_grad_()
        loss = F.cross_entropy(stage(hidden), (tokens + 1) % 30)
        loss.backward()
        dist.send(hidden.grad, 0)
    optimizer.step()
print(f"rank {rank} loss {loss.item():.5f}", flush=True)
dist.destroy_process_group()
