import torch
import torch.nn as nn

torch.manual_seed(0)


class Gated(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.a, self.b = nn.Linear(d, d), nn.Linear(d, d)

    def forward(self, x):
        return x + torch.sigmoid(self.a(x)) * self.b(x)


net = nn.Sequential(nn.Linear(5, 32), Gated(32), Gated(32), nn.Linear(32, 1))
fast = torch.compile(net, backend="eager")
opt = torch.optim.AdamW(net.parameters(), lr=3e-3, fused=True)
for step in range(60):
    x = torch.randn(64, 5)
    y = torch.sin(x[:, :1]) * x[:, 1:2]
    loss = nn.functional.mse_loss(fast(x), y)
    loss.backward()
    opt.step()
    opt.zero_grad(set_to_none=True)
    if step % 20 == 0:
        print(step, loss.item())
