import torch
import torch.nn as nn

torch.manual_seed(0)
device = "cuda" if torch.cuda.is_available() else "cpu"


def make_net():
    return nn.Sequential(
        nn.Linear(32, 64), nn.ReLU(),
        nn.Linear(64, 64), nn.ReLU(),
        nn.Linear(64, 1),
    ).to(device)


net = make_net()
opt = torch.optim.SGD(net.parameters(), lr=1e-2)
scaler = torch.amp.GradScaler(device, init_scale=2.0**10)
loss_fn = nn.MSELoss()
X = torch.randn(1024, 32, device=device)
Y = (X[:, :4].sum(1, keepdim=True)).tanh()

for epoch in range(4):
    for i in range(0, 1024, 64):
        opt.zero_grad(set_to_none=True)
        with torch.autocast(device_type=device, dtype=torch.bfloat16):
            out = net(X[i : i + 64])
        loss = loss_fn(out.float(), Y[i : i + 64])
        scaler.scale(loss).backward()
        torch.nn.utils.clip_grad_norm_(net.parameters(), 5.0)
        opt.step()
    print(epoch, loss.item())
