import torch
import torch.nn as nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(33)


def activity(n, length=30, channels=3):
    kind = torch.randint(3, (n,))
    t = torch.arange(length).float().view(1, -1, 1)
    freq = 0.2 + 0.25 * kind.view(-1, 1, 1)
    x = torch.sin(freq * t + 6 * torch.rand(n, 1, channels)) + 0.2 * torch.randn(n, length, channels)
    return TensorDataset(x, kind)


class ActivityModel(nn.Module):
    def __init__(self, channels=3, hidden=32, classes=3):
        super().__init__()
        self.lstm = nn.LSTM(channels, hidden, num_layers=2, batch_first=True)
        self.fc = nn.Linear(hidden, classes)

    def forward(self, x):
        out, _ = self.lstm(x)
        return self.fc(out[:, -1, :])


train_loader = DataLoader(activity(640), batch_size=32, shuffle=True)
model = ActivityModel()
criterion = nn.CrossEntropyLoss()
optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
for epoch in range(5):
    correct = 0
    for x, y in train_loader:
        optimizer.zero_grad()
        out = model(x)
        loss = criterion(out, y)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        correct += (out.argmax(1) == y).sum().item()
    print(f"epoch {epoch} loss {loss.item():.3f} acc {correct / 640:.3f}")
