import tempfile
import torch
from torch import nn


class ResBlock(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.net = nn.Sequential(nn.LayerNorm(d), nn.Linear(d, d), nn.GELU(), nn.Linear(d, d))

    def forward(self, x):
        return x + self.net(x)


class Net(nn.Module):
    def __init__(self, n_out):
        super().__init__()
        self.stem = nn.Linear(12, 32)
        self.blocks = nn.ModuleList([ResBlock(32) for _ in range(3)])
        self.head = nn.Linear(32, n_out)

    def forward(self, x):
        x = self.stem(x)
        for b in self.blocks:
            x = b(x)
        return self.head(x)


def loop(net, opt, steps, target, on_step=lambda s: None):
    for s in range(steps):
        on_step(s)
        x = torch.randn(64, 12)
        loss = nn.functional.mse_loss(net(x), target(x))
        opt.zero_grad()
        loss.backward()
        opt.step()
    print("loss", loss.item())


torch.manual_seed(0)
source = Net(2)
loop(source, torch.optim.Adam(source.parameters(), lr=3e-3), 40, lambda x: x[:, :2].sin())
file = tempfile.NamedTemporaryFile(suffix=".pt")
torch.save(source.state_dict(), file.name)

net = Net(1)
weights = {k: v for k, v in torch.load(file.name).items() if not k.startswith("head")}
net.load_state_dict(weights, strict=False)
for p in [*net.stem.parameters(), *net.blocks.parameters()]:
    p.requires_grad = False
opt = torch.optim.Adam([p for p in net.parameters() if p.requires_grad], lr=3e-3)


def unfreeze(step):
    if step in (20, 40):
        block = net.blocks[2 if step == 20 else 1]
        for p in block.parameters():
            p.requires_grad = True
        opt.add_param_group({"params": list(block.parameters()), "lr": 1e-3})


start = net.blocks[2].net[1].weight.detach().clone()
loop(net, opt, 60, lambda x: (x[:, :1] * x[:, 1:2]).tanh(), unfreeze)
print("moved", (net.blocks[2].net[1].weight - start).norm().item())
