import torch
from torch import nn


class EMA:
    def __init__(self, model, decay=0.99):
        self.model, self.decay = model, decay
        self.shadow = {n: p.detach().clone() for n, p in model.named_parameters()}
        self.backup = {}

    @torch.no_grad()
    def update(self):
        for name, p in self.model.named_parameters():
            self.shadow[name].lerp_(p, 1 - self.decay)

    @torch.no_grad()
    def apply(self):
        for name, p in self.model.named_parameters():
            self.backup[name] = p.detach().clone()
            p.copy_(self.shadow[name])

    @torch.no_grad()
    def restore(self):
        for name, p in self.model.named_parameters():
            p.copy_(self.backup[name])
        self.backup = {}


def make_model():
    return nn.Sequential(nn.Linear(6, 40), nn.SiLU(), nn.Linear(40, 40), nn.SiLU(), nn.Linear(40, 1))


def sample(n):
    x = torch.randn(n, 6)
    return x, (x[:, :1] * x[:, 1:2]).tanh() + 0.1 * torch.randn(n, 1)


def validate(model, ema, x, y):
    ema.apply()
    with torch.no_grad():
        loss = nn.functional.mse_loss(model(x), y)
    ema.restore()
    return loss.item()


def main():
    torch.manual_seed(41)
    model = make_model()
    ema = EMA(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    held_x, held_y = sample(128)
    for step in range(120):
        x, y = sample(64)
        loss = nn.functional.mse_loss(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        ema.update()
        if step % 20 == 19:
            print(step, loss.item(), validate(model, ema, held_x, held_y))


if __name__ == "__main__":
    main()
