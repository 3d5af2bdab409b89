import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(3)


class CommandNet(nn.Module):
    def __init__(self, bands=20, classes=6, width=32):
        super().__init__()
        self.norm = nn.BatchNorm1d(bands)
        self.conv1 = nn.Conv1d(bands, width, 5, padding=2)
        self.conv2 = nn.Conv1d(width, width, 5, padding=2, stride=2)
        self.fc = nn.Linear(width, classes)

    def forward(self, x):
        x = F.relu(self.conv1(self.norm(x)))
        x = F.relu(self.conv2(x))
        return self.fc(x.mean(-1))


patterns = torch.randn(6, 20, 30)


def utterances(n):
    label = torch.randint(6, (n,))
    return patterns[label] + 1.5 * torch.randn(n, 20, 30), label


def build_optimizer(params):
    return torch.optim.SGD(params, lr=0.1, momentum=0.9, weight_decay=1e-4)


model = CommandNet()
model.norm.requires_grad_(False)
trainable = list(filter(lambda p: p.requires_grad, model.parameters()))
optimizer = build_optimizer(trainable)
scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=80, eta_min=0.01)

for step in range(80):
    x, label = utterances(48)
    loss = F.cross_entropy(model(x), label)
    optimizer.zero_grad()
    loss.backward()
    norm = nn.utils.clip_grad_norm_(trainable, max_norm=0.5)
    optimizer.step()
    scheduler.step()
    if step % 20 == 0:
        print(f"{step:3d} loss {loss.item():.3f} norm {float(norm):.3f}")
