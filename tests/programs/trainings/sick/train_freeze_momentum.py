"""Linear-probe phase after a short joint phase."""
import torch
import torch.nn as nn
import torch.nn.functional as F

CFG = dict(seed=31, dim=20, hidden=32, classes=5, steps=100, freeze_at=20, lr=0.05)


class Probe(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(cfg["dim"], cfg["hidden"]), nn.Tanh(),
                                     nn.Linear(cfg["hidden"], cfg["hidden"]), nn.Tanh())
        self.head = nn.Linear(cfg["hidden"], cfg["classes"])

    def forward(self, x):
        return self.head(self.encoder(x))


def clusters(cfg):
    g = torch.Generator().manual_seed(cfg["seed"] + 1)
    centres = torch.randn(cfg["classes"], cfg["dim"], generator=g)
    while True:
        y = torch.randint(0, cfg["classes"], (64,), generator=g)
        yield centres[y] + 1.2 * torch.randn(64, cfg["dim"], generator=g), y


def run(cfg):
    torch.manual_seed(cfg["seed"])
    model = Probe(cfg)
    optimizer = torch.optim.SGD(model.parameters(), lr=cfg["lr"], momentum=0.9, weight_decay=1e-3)
    data = clusters(cfg)
    for step in range(cfg["steps"]):
        if step == cfg["freeze_at"]:
            model.encoder.requires_grad_(False)
        x, y = next(data)
        optimizer.zero_grad(set_to_none=False)
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        if step % 20 == 0:
            norm = model.encoder[0].weight.norm().item()
            print(f"step {step} loss {loss.item():.4f} |W1| {norm:.4f}")
    return model


if __name__ == "__main__":
    run(CFG)
