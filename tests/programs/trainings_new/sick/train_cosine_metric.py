import torch
import torch.nn as nn
import torch.nn.functional as F


class CosineHead(nn.Module):
    def __init__(self, d, classes, scale=10.0, margin=0.1):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(classes, d))
        self.scale, self.margin = scale, margin

    def forward(self, z, label):
        cosine = F.linear(F.normalize(z), F.normalize(self.weight))
        return self.scale * (cosine - self.margin * F.one_hot(label, cosine.shape[1]))


torch.manual_seed(18)
backbone = nn.Sequential(nn.Linear(20, 48), nn.PReLU(), nn.Linear(48, 16))
metric_fc = CosineHead(16, 6)
optimizer = torch.optim.SGD(backbone.parameters(), lr=0.1, weight_decay=5e-4)
centre = torch.randn(6, 20)
for step in range(100):
    label = torch.randint(0, 6, (36,))
    x = centre[label] + 0.8 * torch.randn(36, 20)
    loss = F.cross_entropy(metric_fc(backbone(x), label), label)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 25 == 24:
        print(step, loss.item())
