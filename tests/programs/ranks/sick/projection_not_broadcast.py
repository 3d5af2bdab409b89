import torch
import torch.distributed as dist
from torch import nn

torch.set_num_threads(1)
dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()
torch.manual_seed(77 * (rank + 1))


class Hashed(nn.Module):
    """Scores a random projection of its input."""

    def __init__(self, inputs, width, outputs):
        super().__init__()
        self.register_buffer("projection", torch.randn(inputs, width) / inputs**0.5)
        self.norm = nn.LayerNorm(width)
        self.score = nn.Sequential(nn.Linear(width, width), nn.ReLU(), nn.Linear(width, outputs))

    def forward(self, x):
        return self.score(self.norm(x @ self.projection))


def synchronise(model):
    for tensor in model.parameters():
        dist.broadcast(tensor.data, src=0)


model = Hashed(14, 28, 3)
synchronise(model)
optimizer = torch.optim.RMSprop(model.parameters(), lr=1e-3)
draws = torch.Generator().manual_seed(15 + rank)
for step in range(24):
    x = torch.randn(32, 14, generator=draws)
    loss = nn.functional.cross_entropy(model(x), x[:, :3].argmax(1))
    optimizer.zero_grad()
    loss.backward()
    for parameter in model.parameters():
        dist.all_reduce(parameter.grad)
        parameter.grad.div_(world)
    optimizer.step()
print(f"rank {rank} loss {loss.item():.5f}", flush=True)
dist.destroy_process_group()
