import torch
import torch.nn.functional as F
from torch import nn


class Coder(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(10, 32), nn.ReLU(), nn.Linear(32, 8))
        self.decoder = nn.Linear(8, 10)

    def forward(self, x):
        scores = self.encoder(x)
        code = F.one_hot(F.gumbel_softmax(scores, tau=1.0).argmax(-1), 8).float()
        return self.decoder(code)


torch.manual_seed(31)
centres = torch.randn(8, 10)
net = Coder()
optimizer = torch.optim.Adam(net.parameters(), lr=3e-3)
for step in range(100):
    x = centres[torch.randint(0, 8, (64,))] + 0.1 * torch.randn(64, 10)
    loss = F.mse_loss(net(x), x)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 20 == 0:
        print(step, loss.item())
