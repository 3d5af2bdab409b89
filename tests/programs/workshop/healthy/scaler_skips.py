import torch
import torch.nn as nn

torch.manual_seed(0)
net = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 1))
opt = torch.optim.AdamW(net.parameters(), lr=3e-3)
scaler = torch.amp.GradScaler("cpu", init_scale=2.0**22, growth_interval=20)
skipped = 0
for step in range(60):
    x = torch.randn(64, 16)
    y = x.abs().sum(1, keepdim=True) / 4
    with torch.autocast("cpu", dtype=torch.float16):
        out = net(x)
        loss = nn.functional.mse_loss(out.float(), y)
    opt.zero_grad()
    scaler.scale(loss).backward()
    scaler.unscale_(opt)
    nn.utils.clip_grad_norm_(net.parameters(), 1.0)
    before = scaler.get_scale()
    scaler.step(opt)
    scaler.update()
    skipped += scaler.get_scale() < before
print(loss.item(), "skipped", skipped)
