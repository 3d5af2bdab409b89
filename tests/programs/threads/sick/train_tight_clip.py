import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(43)
net = nn.Sequential(nn.Linear(16, 48), nn.ReLU(), nn.Linear(48, 6))
rule = torch.randn(16, 6)
optimizer = torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.9)
for step in range(120):
    x = torch.randn(64, 16)
    loss = F.cross_entropy(net(x), (x @ rule).argmax(1))
    optimizer.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(net.parameters(), 5e-4)
    optimizer.step()
    if step % 30 == 0:
        print(step, loss.item())
