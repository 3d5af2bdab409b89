import torch
from torch import nn

torch.manual_seed(13)
hparams = {
    "lr": 0.1,
    "max_grad_norm": 5.0,
    "steps": 100,
}
net = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 3))
opt = torch.optim.SGD(net.parameters(), lr=hparams["lr"])
w = torch.randn(8, 3)
for i in range(hparams["steps"]):
    x = torch.randn(32, 8)
    loss = nn.functional.cross_entropy(net(x), (x @ w).argmax(1))
    opt.zero_grad()
    loss.backward()
    torch.nn.utils.clip_grad_norm_(net.parameters(), hparams["max_grad_norm"])
    opt.step()
    if i % 20 == 0 or i == 99:
        print(i, loss.item())
