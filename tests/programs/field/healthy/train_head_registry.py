from functools import partial

import torch
import torch.nn.functional as F
from torch import nn

HEADS = {
    "toxicity": (partial(nn.Linear, out_features=1), lambda out, y: F.binary_cross_entropy_with_logits(out.squeeze(1), y)),
    "solubility": (partial(nn.Linear, out_features=1), lambda out, y: F.mse_loss(out.squeeze(1), y)),
    "family": (partial(nn.Linear, out_features=5), lambda out, y: F.cross_entropy(out, y.long())),
}


class PropertyModel(nn.Module):
    def __init__(self, atoms=12, dim=48, tasks=tuple(HEADS)):
        super().__init__()
        self.embed = nn.EmbeddingBag(atoms, dim, mode="mean")
        self.trunk = nn.Sequential(nn.LayerNorm(dim), nn.Linear(dim, dim), nn.GELU())
        self.heads = nn.ModuleDict({task: HEADS[task][0](in_features=dim) for task in tasks})

    def forward(self, molecule, task):
        return self.heads[task](self.trunk(self.embed(molecule)))


def make(task, n=48):
    molecule = torch.randint(0, 12, (n, 10))
    count = (molecule == 3).sum(1)
    label = {"toxicity": (count > 0).float(), "solubility": count.float() - molecule.float().mean(1) / 6, "family": count.clamp(max=4)}
    return molecule, label[task]


def run(steps=150):
    torch.manual_seed(22)
    model = PropertyModel()
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    for step in range(steps):
        losses = {}
        optimizer.zero_grad()
        for task, (_, criterion) in HEADS.items():
            molecule, label = make(task)
            losses[task] = criterion(model(molecule, task), label)
        sum(losses.values()).backward()
        optimizer.step()
        if step % 30 == 0:
            print(step, {k: round(v.item(), 3) for k, v in losses.items()})


run()
