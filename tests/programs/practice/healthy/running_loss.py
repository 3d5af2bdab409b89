import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(5)
inputs = torch.randn(256, 8)
targets = inputs[:, :1] * inputs[:, 1:2] + 0.5 * inputs[:, 2:3]
loader = DataLoader(TensorDataset(inputs, targets), batch_size=32, shuffle=True)

features = nn.Sequential(nn.Linear(8, 32), nn.Tanh(), nn.Linear(32, 32), nn.Tanh())
for parameter in features.parameters():
    parameter.requires_grad_(False)
head = nn.Linear(32, 1)
optimizer = torch.optim.SGD(head.parameters(), lr=0.02)
criterion = nn.MSELoss()

for epoch in range(5):
    epoch_loss = 0.0
    for x, y in loader:
        optimizer.zero_grad()
        loss = criterion(head(features(x)), y)
        epoch_loss += loss.item()
        loss.backward()
        optimizer.step()
    print(f"epoch {epoch}: {float(epoch_loss) / len(loader):.4f}")
