import torch
from torch import nn
import torch.nn.functional as F


class SharedTrunk(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.down = nn.Conv2d(3, width, 3, padding=1)
        self.mid = nn.Conv2d(width, width, 3, padding=1)
        self.norm = nn.GroupNorm(4, width)

    def forward(self, x):
        return F.relu(self.norm(self.mid(F.relu(self.down(x)))))


class MultiTask(nn.Module):
    def __init__(self, width=16, classes=3):
        super().__init__()
        self.trunk = SharedTrunk(width)
        self.depth = nn.Conv2d(width, 1, 1)
        self.segment = nn.Conv2d(width, classes, 1)
        self.log_vars = [torch.zeros(1, requires_grad=True) for _ in range(2)]

    def forward(self, x):
        features = self.trunk(x)
        return self.depth(features).squeeze(1), self.segment(features)

    def combine(self, losses):
        total = 0
        for loss, log_var in zip(losses, self.log_vars):
            total = total + torch.exp(-log_var) * loss + 0.5 * log_var
        return total.squeeze()


def scenes(count, size=16):
    depth = torch.rand(count, 1, 1) + torch.linspace(0, 1, size)[None, :, None].expand(count, size, size)
    labels = (depth * 1.5).long().clamp(max=2)
    image = torch.stack([depth, 1 - depth, labels.float()], dim=1)
    return image + 0.1 * torch.randn_like(image), depth, labels


def main():
    torch.manual_seed(13)
    model = MultiTask()
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    for step in range(30):
        images, depth, labels = scenes(8)
        predicted, logits = model(images)
        losses = [F.l1_loss(predicted, depth), F.cross_entropy(logits, labels)]
        total = model.combine(losses)
        optimizer.zero_grad()
        total.backward()
        optimizer.step()
        if step % 10 == 0:
            weights = [round(float(torch.exp(-v.detach())), 3) for v in model.log_vars]
            print(step, [round(x.item(), 3) for x in losses], weights)


main()
