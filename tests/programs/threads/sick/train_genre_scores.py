import torch
import torch.nn.functional as F
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.hidden = nn.Linear(20, 40)
        self.out = nn.Linear(40, 5)

    def forward(self, x):
        return self.out(torch.relu(self.hidden(x)))


torch.manual_seed(41)
net = Net()
rule = torch.randn(20, 5)
optimizer = torch.optim.SGD(net.parameters(), lr=0.02, momentum=0.9)
for step in range(80):
    x = torch.randn(64, 20)
    y = (x @ rule).argmax(1)
    loss = F.nll_loss(net(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 20 == 0:
        print(step, loss.item())
