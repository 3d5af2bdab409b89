import torch
import torch.nn as nn

torch.manual_seed(14)


class TimeNorm(nn.Module):
    """Normalises each channel of each track over time."""

    def __init__(self, channels, eps=1e-5):
        super().__init__()
        self.gain = nn.Parameter(torch.ones(channels))
        self.shift = nn.Parameter(torch.zeros(channels))
        self.eps = eps

    def forward(self, x):
        mean = x.mean(1, keepdim=True)
        square = (x - mean).pow(2).mean(1, keepdim=True)
        scale = square.sqrt() + self.eps
        return (x - mean) / scale * self.gain + self.shift


class TrackClassifier(nn.Module):
    def __init__(self, channels=6, width=32, classes=3):
        super().__init__()
        self.lift = nn.Linear(channels, width, bias=False)
        self.norm = TimeNorm(width)
        self.conv = nn.Conv1d(width, width, 3, padding=1)
        self.head = nn.Linear(width, classes)

    def forward(self, tracks):
        h = torch.tanh(self.norm(self.lift(tracks)))
        h = torch.relu(self.conv(h.transpose(1, 2)))
        return self.head(h.mean(2))


def tracks(n, length=20):
    kind = torch.randint(3, (n,))
    t = torch.arange(length).view(1, -1, 1) / length
    x = torch.sin((kind.view(-1, 1, 1) + 1) * 6 * t + torch.rand(n, 1, 6)) + 0.1 * torch.randn(n, length, 6)
    lost = torch.rand(n) < 0.02
    x[lost] = 0.0
    return x, kind


model = TrackClassifier()
optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
criterion = nn.CrossEntropyLoss()
for step in range(80):
    x, kind = tracks(32)
    loss = criterion(model(x), kind)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 20 == 0:
        print(step, f"{loss.item():.4f}")
