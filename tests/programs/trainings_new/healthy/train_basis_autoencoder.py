import torch
import torch.nn as nn
import torch.nn.functional as F


class Autoencoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(30, 24), nn.ReLU(), nn.Linear(24, 4))
        self.decoder = nn.Sequential(nn.Linear(4, 24), nn.ReLU(), nn.Linear(24, 30))

    def forward(self, x):
        return self.decoder(self.encoder(x))


torch.manual_seed(11)
basis = torch.randn(4, 30)
model = Autoencoder()
optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
for step in range(120):
    x = torch.randn(40, 4) @ basis
    loss = F.mse_loss(model(x), x)
    optimizer.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 2.0)
    optimizer.step()
    if step % 30 == 29:
        print(step + 1, loss.item())
