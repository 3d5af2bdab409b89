import copy

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.func import functional_call, stack_module_state, vmap


def member():
    return nn.Sequential(nn.Linear(10, 32), nn.ReLU(), nn.Linear(32, 1))


class Ensemble:
    def __init__(self, count):
        members = [member() for _ in range(count)]
        self.count = count
        self.parameters, self.buffers = stack_module_state(members)
        self.skeleton = copy.deepcopy(members[0]).to("meta")

    def __call__(self, rows):
        def single(parameters, buffers, batch):
            return functional_call(self.skeleton, (parameters, buffers), (batch,)).squeeze(-1)

        return vmap(single, in_dims=(0, 0, None))(self.parameters, self.buffers, rows)


def rows_of(generator, count=64):
    rows = torch.randn(count, 10, generator=generator)
    return rows, torch.sin(rows[:, 0]) + 0.5 * rows[:, 1] * rows[:, 2]


def main():
    torch.manual_seed(0)
    generator = torch.Generator().manual_seed(5)
    ensemble = Ensemble(4)
    optimizer = torch.optim.Adam(ensemble.parameters.values(), lr=5e-3)
    for step in range(60):
        rows, wanted = rows_of(generator)
        predicted = ensemble(rows)
        loss = F.mse_loss(predicted, wanted.expand_as(predicted), reduction="sum") / len(rows)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 20 == 0:
            print(step, loss.item(), predicted.std(0).mean().item())


if __name__ == "__main__":
    main()
