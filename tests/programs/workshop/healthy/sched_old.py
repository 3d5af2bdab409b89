import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.optim import Adam
from torch.optim.lr_scheduler import ExponentialLR

torch.manual_seed(0)


class AutoEncoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.enc = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 4))
        self.dec = nn.Sequential(nn.Linear(4, 32), nn.ReLU(), nn.Linear(32, 16))

    def forward(self, x):
        return self.dec(self.enc(x))


basis = torch.randn(4, 16)


def batch(n=64):
    c = torch.randn(n, 4)
    return c @ basis, (c[:, 0] > c[:, 1]).long()


ae = AutoEncoder()
optimizer = Adam(ae.parameters(), lr=5e-3)
scheduler = ExponentialLR(optimizer, gamma=0.97)
for step in range(50):
    x, _ = batch()
    loss = F.mse_loss(ae(x), x)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    scheduler.step()
print("reconstruction", loss.item())

# fine-tuning with labels
clf = nn.Sequential(ae.enc, nn.ReLU(), nn.Linear(4, 2))
optimizer = Adam(clf.parameters(), lr=1e-2)
scheduler = ExponentialLR(optimizer, gamma=0.97)
for step in range(50):
    x, y = batch()
    loss = F.cross_entropy(clf(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    scheduler.step()
print("classification", loss.item(), "lr", optimizer.param_groups[0]["lr"])
