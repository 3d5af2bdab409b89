import torch
from torch import nn

torch.manual_seed(40)
net = nn.Sequential(nn.Linear(10, 32), nn.ReLU(), nn.Linear(32, 1))
opt = torch.optim.SGD(net.parameters(), lr=0.05)
scaler = torch.amp.GradScaler("cpu", init_scale=2.0 ** 14)
for step in range(80):
    x = torch.randn(64, 10)
    y = x[:, :1] * 2 - x[:, 1:2]
    opt.zero_grad(set_to_none=True)
    with torch.autocast("cpu", dtype=torch.float16):
        out = net(x)
    loss = nn.functional.mse_loss(out.float(), y)
    scaler.scale(loss).backward()
    scaler.step(opt)
    scaler.update()
    if step % 20 == 19:
        print(step, loss.item())
