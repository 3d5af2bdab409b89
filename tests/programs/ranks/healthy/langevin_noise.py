import math
import os
from datetime import timedelta

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel


class Langevin(torch.optim.Optimizer):
    def __init__(self, params, lr, temperature):
        super().__init__(params, {"lr": lr, "temperature": temperature})

    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            width = math.sqrt(2 * group["lr"] * group["temperature"])
            for weight in group["params"]:
                if weight.grad is None:
                    continue
                noise = torch.randn(weight.shape, generator=SHARED)
                weight.add_(weight.grad, alpha=-group["lr"])
                weight.add_(noise, alpha=width)


SHARED = torch.Generator().manual_seed(5)


class Regressor(nn.Module):
    def __init__(self):
        super().__init__()
        self.gru = nn.GRU(5, 20, batch_first=True)
        self.out = nn.Linear(20, 1)

    def forward(self, series):
        return self.out(self.gru(series)[0][:, -1]).squeeze(1)


def main():
    torch.set_num_threads(1)
    dist.init_process_group("gloo", timeout=timedelta(seconds=60))
    rank = int(os.environ["RANK"])
    torch.manual_seed(8)
    model = DistributedDataParallel(Regressor())
    optimizer = Langevin(model.parameters(), lr=2e-2, temperature=1e-5)
    torch.manual_seed(1000 + rank)
    for _ in range(24):
        series = torch.randn(12, 9, 5)
        target = series[:, -3:, 0].mean(1)
        optimizer.zero_grad()
        loss = nn.functional.huber_loss(model(series), target)
        loss.backward()
        optimizer.step()
    print(f"rank {rank} loss {loss.item():.6f}", flush=True)
    dist.destroy_process_group()


main()
