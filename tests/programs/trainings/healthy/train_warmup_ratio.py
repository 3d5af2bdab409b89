import torch
import torch.nn as nn
import torch.nn.functional as F

settings = {
    "seed": 271,
    "model": {"tokens": 30, "dim": 24, "classes": 5},
    "optim": {"lr": 1e-2, "warmup_steps": 40},
    "steps": 120,
}


class BagOfTokens(nn.Module):
    def __init__(self, tokens, dim, classes):
        super().__init__()
        self.table = nn.EmbeddingBag(tokens, dim, mode="mean")
        self.ff = nn.Sequential(nn.Linear(dim, 48), nn.ReLU(), nn.LayerNorm(48), nn.Linear(48, classes))

    def forward(self, ids):
        return self.ff(self.table(ids))


def warmup_factor(step, warmup_steps):
    if step < warmup_steps:
        return (step + 1) / warmup_steps
    return 1.0


def make_data(cfg):
    g = torch.Generator().manual_seed(cfg["seed"] + 1)
    topics = torch.distributions.Dirichlet(torch.full((cfg["model"]["tokens"],), 0.4))
    table = torch.stack([topics.sample() for _ in range(cfg["model"]["classes"])])

    def batch(n=64, length=20):
        y = torch.randint(0, len(table), (n,), generator=g)
        return torch.multinomial(table[y], length, replacement=True, generator=g), y

    return batch


def train(cfg):
    torch.manual_seed(cfg["seed"])
    batch = make_data(cfg)
    model = BagOfTokens(**cfg["model"])
    opt = torch.optim.Adam(model.parameters(), lr=cfg["optim"]["lr"])
    sched = torch.optim.lr_scheduler.LambdaLR(opt, lambda s: warmup_factor(s, cfg["optim"]["warmup_steps"]))
    for step in range(cfg["steps"]):
        ids, y = batch()
        loss = F.cross_entropy(model(ids), y)
        opt.zero_grad()
        loss.backward()
        opt.step()
        sched.step()
        if step % 15 == 0:
            print(step, f"loss {loss.item():.4f}")
    return model


train(settings)
