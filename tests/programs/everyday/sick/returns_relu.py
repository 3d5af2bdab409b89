import torch
import torch.nn as nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(28)


class ReturnModel(nn.Module):
    """Predicts the next log-return (in per cent) from the last ten."""

    def __init__(self, window=10, hidden=32):
        super().__init__()
        self.fc1 = nn.Linear(window, hidden)
        self.fc2 = nn.Linear(hidden, hidden)
        self.out = nn.Linear(hidden, 1)

    def forward(self, x):
        x = torch.relu(self.fc1(x))
        x = torch.relu(self.fc2(x))
        return torch.relu(self.out(x))


def falling_market(n=800):
    r = torch.zeros(n)
    for i in range(1, n):
        r[i] = 0.7 * r[i - 1] - 0.6 + 0.3 * torch.randn(())
    x = r.unfold(0, 11, 1)
    return TensorDataset(x[:, :-1], x[:, -1:])


loader = DataLoader(falling_market(), batch_size=40, shuffle=True)
model = ReturnModel()
optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
loss_fn = nn.MSELoss()
for epoch in range(5):
    for x, y in loader:
        loss = loss_fn(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(f"epoch {epoch}: {loss.item():.4f}")
