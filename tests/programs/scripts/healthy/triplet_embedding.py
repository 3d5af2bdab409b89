import torch
from torch import nn
from torch.nn import functional as F


def pairwise(x):
    square = (x.unsqueeze(0) - x.unsqueeze(1)).pow(2).sum(-1)
    return (square + 1e-12).sqrt()


def batch_hard(x, labels, margin=0.3):
    distance = pairwise(x)
    same = labels.unsqueeze(0) == labels.unsqueeze(1)
    eye = torch.eye(len(x), dtype=torch.bool)
    positive = torch.where(same & ~eye, distance, torch.zeros_like(distance)).max(1).values
    negative = torch.where(same, torch.full_like(distance, 1e4), distance).min(1).values
    return F.relu(positive - negative + margin).mean() + 1e-3 * distance.mean()


class Embedder(nn.Module):
    def __init__(self):
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(1, 8, 3, stride=2, padding=1), nn.ReLU(),
            nn.Conv2d(8, 16, 3, stride=2, padding=1), nn.ReLU(),
        )
        self.fc = nn.Linear(16 * 9, 16)

    def forward(self, x):
        return F.normalize(self.fc(self.features(x).flatten(1)), dim=1)


def sampler(prototypes, classes=6, each=4):
    chosen = torch.randperm(len(prototypes))[:classes].repeat_interleave(each)
    return prototypes[chosen] + 0.15 * torch.randn(len(chosen), 1, 12, 12), chosen


torch.manual_seed(5)
prototypes = torch.randn(12, 1, 12, 12)
net = Embedder()
optimizer = torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.9, nesterov=True)
scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 30, 0.5)
for iteration in range(60):
    images, labels = sampler(prototypes)
    loss = batch_hard(net(images), labels)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    scheduler.step()
    if iteration % 10 == 0:
        print(iteration, loss.item())
