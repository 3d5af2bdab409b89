import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(47)
data = torch.randn(100, 6)
loader = DataLoader(TensorDataset(data, data[:, :2].sum(1, keepdim=True).sin()), batch_size=10, shuffle=True)
model = nn.Sequential(nn.Linear(6, 32), nn.Tanh(), nn.Linear(32, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.2)
gradient_accumulation_steps = 5
for epoch in range(12):
    optimizer.zero_grad()
    epoch_loss = 0.0
    for i, (x, y) in enumerate(loader):
        loss = nn.functional.mse_loss(model(x), y)
        (loss / gradient_accumulation_steps).backward()
        epoch_loss += loss.item() / len(loader)
        if (i + 1) % gradient_accumulation_steps == 0:
            optimizer.step()
            optimizer.zero_grad()
    print(epoch, round(epoch_loss, 4))
