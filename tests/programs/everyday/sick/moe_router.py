import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(60)


class SwitchLayer(nn.Module):
    """Each token goes to one of several experts."""

    def __init__(self, dim, experts=4):
        super().__init__()
        self.router = nn.Linear(dim, experts)
        self.experts = nn.ModuleList(
            [nn.Sequential(nn.Linear(dim, 2 * dim), nn.GELU(), nn.Linear(2 * dim, dim)) for _ in range(experts)]
        )

    def forward(self, x):
        gates = F.softmax(self.router(x), dim=-1)
        weight, choice = gates.max(dim=-1)
        out = torch.zeros_like(x)
        for i, expert in enumerate(self.experts):
            chosen = choice == i
            if chosen.any():
                out[chosen] = expert(x[chosen])
        return x + out


class SwitchNet(nn.Module):
    def __init__(self, features=12, dim=24, classes=4):
        super().__init__()
        self.stem = nn.Linear(features, dim)
        self.norm = nn.LayerNorm(dim)
        self.switch = SwitchLayer(dim)
        self.head = nn.Linear(dim, classes)

    def forward(self, x):
        return self.head(self.switch(self.norm(self.stem(x))))


rule = torch.randn(4, 12, 4)
model = SwitchNet()
optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
for step in range(150):
    x = torch.randn(96, 12)
    group = (x[:, 0] > 0).long() * 2 + (x[:, 1] > 0).long()
    y = torch.einsum("nf,nfc->nc", x, rule[group]).argmax(1)
    loss = F.cross_entropy(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 30 == 0:
        print(f"step {step} loss {loss.item():.4f}")
