import os
import tempfile

import torch
from torch import nn


def build(width=48):
    return nn.Sequential(nn.Linear(10, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(), nn.Linear(width, 1))


def train(model, optimizer, steps, seed):
    g = torch.Generator().manual_seed(seed)
    for i in range(steps):
        x = torch.randn(64, 10, generator=g)
        y = (x[:, :1] * x[:, 1:2]).sigmoid()
        loss = nn.functional.mse_loss(model(x), y)
        model.zero_grad()
        loss.backward()
        optimizer.step()
    return loss.item()


def save(path, model, optimizer, step):
    torch.save({"model": model.state_dict(), "optim": optimizer.state_dict(), "step": step}, path)


torch.manual_seed(0)
path = os.path.join(tempfile.mkdtemp(), "last.pt")
model = build()
optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
print("first run", train(model, optimizer, 40, seed=1))
save(path, model, optimizer, 40)

# --- second session -------------------------------------------------------
state = torch.load(path)
model = build()
optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
optimizer.load_state_dict(state["optim"])
model = build()
model.load_state_dict(state["model"])
before = model[0].weight.detach().clone()
print("second run", train(model, optimizer, 40, seed=2))
print("moved", (model[0].weight - before).norm().item())
