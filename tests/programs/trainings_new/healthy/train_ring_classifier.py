import torch
from torch import nn

DEFAULTS = {"lr": 1e-2, "grad_clip": 0.0, "epochs": 10}


def train(cfg):
    torch.manual_seed(16)
    x = torch.randn(200, 4)
    y = (x.norm(dim=1) > 1.9).float()
    model = nn.Sequential(nn.Linear(4, 32), nn.ReLU(), nn.Linear(32, 1))
    optimizer = torch.optim.Adam(model.parameters(), lr=cfg["lr"])
    for epoch in range(cfg["epochs"]):
        for rows in torch.randperm(200).split(40):
            loss = nn.functional.binary_cross_entropy_with_logits(model(x[rows]).squeeze(1), y[rows])
            optimizer.zero_grad()
            loss.backward()
            if cfg["grad_clip"]:
                nn.utils.clip_grad_norm_(model.parameters(), cfg["grad_clip"])
            optimizer.step()
        print(epoch, f"{loss.item():.4f}")


train(DEFAULTS)
