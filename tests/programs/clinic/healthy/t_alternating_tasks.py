import random

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Multi(nn.Module):
    def __init__(self, width=32):
        super().__init__()
        self.trunk = nn.GRU(4, width, batch_first=True)
        self.heads = nn.ModuleDict({"sign": nn.Linear(width, 2), "sum": nn.Linear(width, 1)})

    def forward(self, x, task):
        _, last = self.trunk(x)
        return self.heads[task](last[0])


def data(task, n=400):
    x = torch.randn(n, 8, 4)
    if task == "sign":
        return TensorDataset(x, (x[:, :, 0].sum(1) > 0).long())
    return TensorDataset(x, x[:, :, 1].mean(1))


def endless(loader):
    while True:
        yield from loader


def loss_of(task, output, y):
    return F.cross_entropy(output, y) if task == "sign" else F.mse_loss(output.squeeze(1), y)


def main():
    random.seed(9)
    torch.manual_seed(9)
    tasks = ("sign", "sum")
    streams = {t: endless(DataLoader(data(t), batch_size=32, shuffle=True)) for t in tasks}
    model = Multi()
    optimizer = torch.optim.AdamW(model.parameters(), lr=5e-3)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=5e-3, total_steps=140)
    recent = dict.fromkeys(tasks, 0.0)
    for step in range(140):
        task = random.choice(tasks)
        x, y = next(streams[task])
        loss = loss_of(task, model(x, task), y)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        recent[task] = 0.9 * recent[task] + 0.1 * loss.item()
        if step % 35 == 0:
            print(step, {name: round(value, 3) for name, value in recent.items()})


if __name__ == "__main__":
    main()
