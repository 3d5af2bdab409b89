import torch
import torch.nn as nn
import torch.nn.functional as F


class PatchForecaster(nn.Module):
    """Forecasts a series from patches of its past, with learned queries for the horizon."""

    def __init__(self, patch=8, patches=12, horizon=4, width=32):
        super().__init__()
        self.patch, self.horizon = patch, horizon
        self.embed = nn.Linear(patch, width)
        self.positions = nn.Parameter(0.02 * torch.randn(patches, width))
        self.horizon_queries = nn.Parameter(0.02 * torch.randn(horizon, width))
        layer = nn.TransformerEncoderLayer(width, 4, 64, dropout=0.0, batch_first=True, norm_first=True)
        self.encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.attend = nn.MultiheadAttention(width, 4, batch_first=True)
        self.norm = nn.LayerNorm(width)
        self.project = nn.Linear(width, patch)

    def forward(self, series):
        patches = series.unfold(1, self.patch, self.patch)
        memory = self.encoder(self.embed(patches) + self.positions)
        queries = self.horizon_queries.expand(len(series), -1, -1)
        future, _ = self.attend(queries, memory, memory)
        return self.project(self.norm(queries + future)).flatten(1)


def parameter_groups(model, weight_decay):
    norms = {f"{name}." for name, module in model.named_modules() if isinstance(module, nn.LayerNorm)}
    decay, plain = [], []
    for name, parameter in model.named_parameters():
        if name.endswith("bias") or any(name.startswith(prefix) for prefix in norms):
            plain.append(parameter)
        elif name.endswith("weight"):
            decay.append(parameter)
    return [
        {"params": decay, "weight_decay": weight_decay},
        {"params": plain, "weight_decay": 0.0},
    ]


def waves(count, generator):
    time = torch.arange(128) / 10
    speed = 0.5 + torch.rand(count, 1, generator=generator)
    phase = 6.28 * torch.rand(count, 1, generator=generator)
    return torch.sin(speed * time + phase) + 0.05 * torch.randn(count, 128, generator=generator)


def train(steps=50):
    torch.manual_seed(2)
    generator = torch.Generator().manual_seed(2)
    model = PatchForecaster()
    optimizer = torch.optim.AdamW(parameter_groups(model, 0.05), lr=2e-3)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 4e-3, total_steps=steps)
    for step in range(steps):
        series = waves(32, generator)
        loss = F.mse_loss(model(series[:, :96]), series[:, 96:])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
        if step % 10 == 0:
            print(f"step {step:3d} mse {loss.item():.4f}")


train()
