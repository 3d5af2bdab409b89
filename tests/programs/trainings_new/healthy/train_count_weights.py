import torch
from torch import nn

torch.manual_seed(12)
model = nn.Sequential(nn.Linear(9, 40), nn.ReLU(), nn.Linear(40, 40), nn.ReLU(), nn.Linear(40, 1))
optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
params = list(model.parameters())
print("weights:", sum(p.numel() for p in params))

data = torch.randn(400, 9)
target = (data[:, :3].prod(dim=1, keepdim=True) * 4).tanh()
for epoch in range(15):
    for chunk in torch.randperm(len(data)).chunk(8):
        optimizer.zero_grad()
        loss = ((model(data[chunk]) - target[chunk]) ** 2).mean()
        loss.backward()
        nn.utils.clip_grad_norm_(params, 0.5)
        optimizer.step()
    if epoch % 5 == 4:
        print(epoch, float(loss))
