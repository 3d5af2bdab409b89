"""Recurrent autoencoder of animal poses."""

import torch
from torch import nn
from torch.optim.lr_scheduler import StepLR

config = {
    "num_features": 6,
    "time_window": 12,
    "zdims": 4,
    "hidden_size": 24,
    "learning_rate": 5e-3,
    "max_epochs": 16,
    "scheduler": False,
    "scheduler_step_size": 5,
    "scheduler_gamma": 0.2,
}


class PoseAutoencoder(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        self.window = cfg["time_window"]
        self.encoder = nn.GRU(cfg["num_features"], cfg["hidden_size"], batch_first=True)
        self.to_latent = nn.Linear(cfg["hidden_size"], cfg["zdims"])
        self.from_latent = nn.Linear(cfg["zdims"], cfg["hidden_size"])
        self.decoder = nn.GRU(cfg["hidden_size"], cfg["hidden_size"], batch_first=True)
        self.readout = nn.Linear(cfg["hidden_size"], cfg["num_features"])

    def forward(self, x):
        _, h = self.encoder(x)
        z = self.to_latent(h[-1])
        repeated = self.from_latent(z).unsqueeze(1).expand(-1, self.window, -1)
        decoded, _ = self.decoder(repeated)
        return self.readout(decoded), z


def poses(n, cfg):
    time = torch.linspace(0, 3.14, cfg["time_window"])
    speed = 1 + torch.rand(n, 1, cfg["num_features"])
    phase = 6.28 * torch.rand(n, 1, cfg["num_features"])
    return torch.sin(speed * time[None, :, None] + phase)


def train_model(cfg):
    torch.manual_seed(19)
    model = PoseAutoencoder(cfg)
    optimizer = torch.optim.Adam(model.parameters(), lr=cfg["learning_rate"], amsgrad=True)
    step_size, gamma = cfg["scheduler_step_size"], cfg["scheduler_gamma"]
    if cfg["scheduler"]:
        scheduler = StepLR(optimizer, step_size=step_size, gamma=gamma)
    else:
        scheduler = StepLR(optimizer, step_size=step_size, gamma=0, last_epoch=-1)
    data = poses(96, cfg)
    for epoch in range(cfg["max_epochs"]):
        total = 0.0
        for batch in data.split(32):
            recon, z = model(batch)
            loss = (recon - batch).pow(2).mean() + 1e-3 * z.pow(2).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.item()
        scheduler.step()
        print(f"epoch {epoch} loss {total / 3:.4f}")
    return model


if __name__ == "__main__":
    train_model(config)
