import torch
from torch import nn


class EMA:
    def __init__(self, model, decay=0.99):
        self.decay = decay
        self.shadow = {k: v.clone() for k, v in model.state_dict().items() if v.is_floating_point()}
        self.backup = {}

    @torch.no_grad()
    def update(self, model):
        for key, value in model.state_dict().items():
            if key in self.shadow:
                self.shadow[key].mul_(self.decay).add_(value, alpha=1 - self.decay)

    def apply(self, model):
        self.backup = {k: v.clone() for k, v in model.state_dict().items()}
        model.load_state_dict(self.shadow, strict=False)

    def restore(self, model):
        model.load_state_dict(self.backup)


class Prior(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(9, 64), nn.SiLU(), nn.LayerNorm(64), nn.Linear(64, 4))

    def forward(self, x):
        return self.net(x)


def batch(n=64):
    text = torch.randn(n, 5)
    image = torch.stack([text[:, 0], text[:, 1] * text[:, 2], text[:, 3].abs(), text[:, 4]], 1)
    noisy = image + torch.randn_like(image)
    return torch.cat([text, noisy], 1), image


if __name__ == "__main__":
    torch.manual_seed(0)
    model = Prior()
    ema = EMA(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    for step in range(200):
        x, y = batch()
        loss = (model(x) - y).pow(2).mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        ema.update(model)
        if step % 50 == 49:
            x, y = batch(256)
            live = (model(x) - y).pow(2).mean().item()
            ema.apply(model)
            averaged = (model(x) - y).pow(2).mean().item()
            ema.restore(model)
            print(step, round(live, 4), round(averaged, 4), live == averaged)
