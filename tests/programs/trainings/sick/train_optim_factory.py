import torch
import torch.nn as nn
import torch.nn.functional as F

HP = {"lr": 2e-2, "wd": 1e-4, "steps": 150, "seed": 421}


def make_optimizer(model, lr, weight_decay):
    decay = [p for p in model.parameters() if p.ndim > 1]
    plain = [p for p in model.parameters() if p.ndim <= 1]
    groups = [{"params": decay, "weight_decay": weight_decay}, {"params": plain, "weight_decay": 0.0}]
    return torch.optim.SGD(groups, lr=lr, momentum=0.9, nesterov=True)


class ResidualMLP(nn.Module):
    def __init__(self, d=18, h=48, classes=6):
        super().__init__()
        self.inp = nn.Linear(d, h)
        self.blocks = nn.ModuleList(nn.Sequential(nn.LayerNorm(h), nn.Linear(h, h), nn.ReLU()) for _ in range(2))
        self.out = nn.Linear(h, classes)

    def forward(self, x):
        h = self.inp(x)
        for block in self.blocks:
            h = h + block(h)
        return self.out(h)


def setup(hp):
    torch.manual_seed(hp["seed"])
    model = ResidualMLP()
    return model, make_optimizer(model, hp["wd"], hp["lr"])


def main(hp):
    model, optimizer = setup(hp)
    g = torch.Generator().manual_seed(hp["seed"] + 1)
    centres = torch.randn(6, 18, generator=g)
    for step in range(hp["steps"]):
        y = torch.randint(0, 6, (64,), generator=g)
        x = centres[y] + 1.0 * torch.randn(64, 18, generator=g)
        logits = model(x)
        loss = F.cross_entropy(logits, y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 25 == 0:
            print(f"step {step} loss {loss.item():.4f} acc {(logits.argmax(1) == y).float().mean().item():.3f}")


main(HP)
