import torch
from torch import nn

torch.manual_seed(38)
dtype = torch.bfloat16
model = nn.Sequential(nn.Linear(12, 64), nn.ReLU(), nn.Linear(64, 4)).to(dtype)
optimizer = torch.optim.AdamW(model.parameters(), lr=2e-4, weight_decay=0.0)
data = torch.randn(320, 12)
label = data[:, :4].argmax(1)
for epoch in range(20):
    total = 0.0
    for rows in torch.randperm(320).split(40):
        loss = nn.functional.cross_entropy(model(data[rows].to(dtype)).float(), label[rows])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        total += loss.item() / 8
    if epoch % 5 == 4:
        print(epoch, total)
