import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(0)


def lottery_prune(model, amount):
    """Zero the smallest weights and keep them zero with gradient hooks."""
    masks = {}
    for name, p in model.named_parameters():
        if p.dim() > 1:
            k = int(p.numel() * amount)
            cut = p.abs().flatten().kthvalue(k).values
            masks[name] = (p.abs() > cut).float()
            p.data.mul_(masks[name])
            p.register_hook(lambda g, m=masks[name]: g * m)
    return masks


net = nn.Sequential(nn.Linear(15, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 3))
masks = lottery_prune(net, 0.8)
opt = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
w = torch.randn(15, 3)
for step in range(80):
    x = torch.randn(64, 15)
    loss = F.cross_entropy(net(x), (x @ w).argmax(1))
    opt.zero_grad()
    loss.backward()
    opt.step()
print(loss.item(), {k: float((net.get_parameter(k) != 0).float().mean()) for k in masks})
