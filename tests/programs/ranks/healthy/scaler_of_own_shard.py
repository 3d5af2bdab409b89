import os

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard


class DynamicScaler:
    def __init__(self, scale=2.0**12, interval=3):
        self.scale, self.interval, self.good = scale, interval, 0

    def has_overflow(self, parameters):
        flags = [~p.grad.to_local().isfinite().all() for p in parameters if p.grad is not None]
        overflow = torch.stack(flags).any().float()
        dist.all_reduce(overflow, op=dist.ReduceOp.MAX)
        return bool(overflow)

    def step(self, optimizer, parameters):
        overflow = self.has_overflow(parameters)
        if overflow:
            self.scale /= 2
            self.good = 0
            return
        for parameter in parameters:
            parameter.grad.mul_(1 / self.scale)
        optimizer.step()
        self.good += 1
        if self.good % self.interval == 0:
            self.scale *= 2


def main():
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank = int(os.environ["RANK"])
    torch.manual_seed(8)
    policy = MixedPrecisionPolicy(reduce_dtype=torch.float16)
    model = nn.Sequential(nn.Linear(10, 32), nn.Tanh(), nn.Linear(32, 32), nn.Tanh(), nn.Linear(32, 6))
    for layer in (model[0], model[2], model[4]):
        fully_shard(layer, mp_policy=policy)
    fully_shard(model, mp_policy=policy)
    parameters = list(model.parameters())
    optimizer = torch.optim.AdamW(parameters, lr=3e-3)
    scaler = DynamicScaler()
    draws = torch.Generator().manual_seed(60 + rank)
    for _ in range(24):
        x = torch.randn(32, 10, generator=draws)
        target = torch.stack([x[:, i] * (4.0 if i == 4 else 0.5) for i in range(6)], 1)
        loss = nn.functional.mse_loss(model(x), target)
        optimizer.zero_grad()
        (loss * scaler.scale).backward()
        scaler.step(optimizer, parameters)
    print(f"rank {rank} loss {loss.item():.6f} scale {scaler.scale:.0f}", flush=True)
    dist.destroy_process_group()


main()
