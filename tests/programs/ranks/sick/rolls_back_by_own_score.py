import copy

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler


def dataset(seed, count):
    draws = torch.Generator().manual_seed(seed)
    x = torch.randn(count, 7, generator=draws)
    y = (x[:, :1] * x[:, 1:2]).tanh() + 0.3 * torch.randn(count, 1, generator=draws)
    return TensorDataset(x, y)


@torch.no_grad()
def validate(model, data):
    model.eval()
    x, y = data.tensors
    score = nn.functional.mse_loss(model(x), y)
    model.train()
    return score


torch.set_num_threads(1)
dist.init_process_group("gloo")
rank = dist.get_rank()
world = dist.get_world_size()
torch.manual_seed(3)
net = nn.Sequential(nn.Linear(7, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 1))
model = DDP(net)
optimizer = torch.optim.Adam(model.parameters(), lr=6e-3)
training = dataset(0, 96)
held = dataset(10 + rank, 24)
sampler = DistributedSampler(training, shuffle=True, seed=2)
loader = DataLoader(training, batch_size=12, sampler=sampler)
best, best_state = float("inf"), copy.deepcopy(net.state_dict())
for epoch in range(9):
    sampler.set_epoch(epoch)
    for x, y in loader:
        loss = nn.functional.mse_loss(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    score = validate(net, held)
    score = score.item()
    if score < best:
        best, best_state = score, copy.deepcopy(net.state_dict())
    elif score > 1.02 * best:
        net.load_state_dict(best_state)
print(f"rank {rank} loss {loss.item():.5f}", flush=True)
dist.destroy_process_group()
