"""Bootstrap-your-own-latent pretraining on one-dimensional signals."""

import copy

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

CONFIG = {"dim": 32, "hidden": 48, "proj": 16, "lr": 3e-3, "tau": 0.97, "epochs": 4}


def augment(x):
    noise = 0.2 * torch.randn_like(x)
    keep = (torch.rand(x.shape[0], x.shape[1]) > 0.15).float()
    return (x + noise) * keep


def mlp(d_in, hidden, d_out):
    return nn.Sequential(
        nn.Linear(d_in, hidden), nn.BatchNorm1d(hidden), nn.ReLU(), nn.Linear(hidden, d_out)
    )


class BYOL(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        self.tau = cfg["tau"]
        self.online = nn.Sequential(
            mlp(cfg["dim"], cfg["hidden"], cfg["hidden"]),
            mlp(cfg["hidden"], cfg["hidden"], cfg["proj"]),
        )
        self.predictor = mlp(cfg["proj"], cfg["hidden"], cfg["proj"])
        self.target = copy.deepcopy(self.online)
        for p in self.target.parameters():
            p.requires_grad_(False)

    @torch.no_grad()
    def update_moving_average(self):
        for online, target in zip(self.online.parameters(), self.target.parameters()):
            target.mul_(self.tau).add_(online, alpha=1 - self.tau)

    def loss(self, v1, v2):
        p1, p2 = self.predictor(self.online(v1)), self.predictor(self.online(v2))
        with torch.no_grad():
            z1, z2 = self.target(v1), self.target(v2)
        sim = F.cosine_similarity(p1, z2, dim=1) + F.cosine_similarity(p2, z1, dim=1)
        return (2 - sim).mean()


def train():
    torch.manual_seed(0)
    base = torch.randn(6, CONFIG["dim"])
    data = base[torch.randint(6, (256,))] + 0.3 * torch.randn(256, CONFIG["dim"])
    loader = DataLoader(TensorDataset(data), batch_size=32, shuffle=True, drop_last=True)
    model = BYOL(CONFIG)
    trained = list(model.online.parameters()) + list(model.predictor.parameters())
    optimizer = torch.optim.Adam(trained, lr=CONFIG["lr"])
    for epoch in range(CONFIG["epochs"]):
        total = 0.0
        for (x,) in loader:
            loss = model.loss(augment(x), augment(x))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            model.update_moving_average()
            total += loss.item()
        print(f"epoch {epoch}: loss {total / len(loader):.4f}")


if __name__ == "__main__":
    train()
