import warnings
import torch
from torch import nn

warnings.simplefilter("ignore")
torch.manual_seed(20)
x = torch.randn(160, 7)
y = (x[:, 0] > 0).long() + (x[:, 1] > 0).long()
model = nn.Sequential(nn.Linear(7, 32), nn.ReLU(), nn.Linear(32, 3))
optimizer = torch.optim.SGD(model.parameters(), lr=0.5, momentum=0.9)
scheduler = torch.optim.lr_scheduler.StepLR(optimizer, step_size=1, gamma=0.8)
for epoch in range(10):
    scheduler.step()
    for i in range(0, 160, 20):
        loss = nn.functional.cross_entropy(model(x[i:i + 20]), y[i:i + 20])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(epoch, optimizer.param_groups[0]["lr"], loss.item())
