import torch
from torch import nn


class UncertaintyLoss(nn.Module):
    """Kendall et al.: one log-variance for each task."""

    def __init__(self, n_tasks):
        super().__init__()
        self.log_var = nn.Parameter(torch.zeros(n_tasks))

    def forward(self, losses):
        total = 0
        for s, l in zip(self.log_var, losses):
            total = total + torch.exp(-s) * l + s
        return total


class DepthAndNormals(nn.Module):
    def __init__(self):
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(3, 8, 3, padding=1), nn.ReLU(), nn.Conv2d(8, 8, 3, padding=1), nn.ReLU()
        )
        self.depth = nn.Conv2d(8, 1, 1)
        self.normals = nn.Conv2d(8, 3, 1)

    def forward(self, img):
        f = self.features(img)
        return self.depth(f), nn.functional.normalize(self.normals(f), dim=1)


def synthetic(n=8):
    img = torch.rand(n, 3, 12, 12)
    depth = img.mean(1, keepdim=True) * 10
    normals = nn.functional.normalize(img - 0.5, dim=1)
    return img, depth, normals


torch.manual_seed(0)
net = DepthAndNormals()
criterion = UncertaintyLoss(2)
optimizer = torch.optim.Adam(net.parameters(), lr=5e-3)
for i in range(50):
    img, depth, normals = synthetic()
    d, n = net(img)
    l_depth = (d - depth).abs().mean()
    l_norm = (1 - (n * normals).sum(1)).mean()
    loss = criterion([l_depth, l_norm])
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
print("weights", criterion.log_var.detach().neg().exp().tolist(), l_depth.item(), l_norm.item())
