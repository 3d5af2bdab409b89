import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(123)
ACCUM = 4


def conv_block(i, o):
    return nn.Sequential(nn.Conv1d(i, o, 5, padding=2), nn.GroupNorm(2, o), nn.SiLU(), nn.MaxPool1d(2))


model = nn.Sequential(conv_block(1, 8), conv_block(8, 16), nn.AdaptiveAvgPool1d(1), nn.Flatten(), nn.Linear(16, 3))
freq = torch.randint(1, 4, (768,))
t = torch.linspace(0, 6.28, 48)
signals = torch.sin(freq.unsqueeze(1) * t + torch.rand(768, 1) * 6.28).unsqueeze(1)
loader = DataLoader(TensorDataset(signals + 0.2 * torch.randn_like(signals), freq - 1), batch_size=8, shuffle=True)

criterion = nn.CrossEntropyLoss()
optimizer = torch.optim.AdamW(model.parameters(), lr=4e-3)
updates = 0
optimizer.zero_grad()
for i, (x, y) in enumerate(loader):
    loss = criterion(model(x), y) / ACCUM
    loss.backward()
    if (i + 1) % ACCUM == 0:
        optimizer.step()
        optimizer.zero_grad()
        updates += 1
    if i % 24 == 0:
        print(i, loss.item() * ACCUM)
print("micro-batches", i + 1, "updates", updates)
