import torch
import torch.nn.functional as F
from torch import nn

TASKS = {"mood": 3, "topic": 6, "length": 1}


class GatedUnit(nn.Module):
    def __init__(self, inputs, outputs):
        super().__init__()
        self.linear = nn.Linear(inputs, 2 * outputs)

    def forward(self, x):
        return F.glu(self.linear(x), dim=-1)


class Trunk(nn.Module):
    def __init__(self, inputs, width, depth):
        super().__init__()
        self.units = nn.ModuleList(
            GatedUnit(inputs if i == 0 else width, width) for i in range(depth)
        )
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(depth))

    def forward(self, x):
        for unit, norm in zip(self.units, self.norms):
            x = norm(unit(x))
        return x


class MultiTask(nn.Module):
    def __init__(self, tasks, inputs=20, width=32):
        super().__init__()
        self.trunk = Trunk(inputs, width, depth=2)
        self.heads = nn.ModuleDict({
            name: nn.Linear(width, outputs) for name, outputs in tasks.items()
        })

    def forward(self, x):
        features = self.trunk(x)
        return {name: head(features) for name, head in self.heads.items()}


def build_model():
    torch.manual_seed(42)
    return MultiTask(TASKS)


def build_batch():
    generator = torch.Generator().manual_seed(43)
    x = torch.randn(24, 20, generator=generator)
    targets = {
        "mood": torch.randint(0, 3, (24,), generator=generator),
        "topic": torch.randint(0, 6, (24,), generator=generator),
        "length": torch.rand(24, 1, generator=generator),
    }
    return x, targets


def loss_fn(output, batch):
    targets = batch[1]
    loss = F.mse_loss(output["length"], targets["length"])
    for name in ("mood", "topic"):
        loss = loss + F.cross_entropy(output[name], targets[name])
    return loss
