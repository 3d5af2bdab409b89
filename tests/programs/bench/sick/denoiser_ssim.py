"""Image denoising with a mean squared error and a structural similarity term."""

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

def ssim(a, b, c1=0.01**2, c2=0.03**2):
    """Mean structural similarity of two batches, with one window per image."""
    a = a.detach().cpu().numpy()
    b = b.detach().cpu().numpy()
    axes = (1, 2, 3)
    mu_a, mu_b = a.mean(axis=axes), b.mean(axis=axes)
    cov = np.mean((a - mu_a[:, None, None, None]) * (b - mu_b[:, None, None, None]), axis=axes)
    top = (2 * mu_a * mu_b + c1) * (2 * cov + c2)
    return torch.tensor((top / ((mu_a**2 + mu_b**2 + c1) * (a.var(axis=axes) + b.var(axis=axes) + c2))).mean())


class DnCNN(nn.Module):
    def __init__(self, c=12, depth=3):
        super().__init__()
        layers = [nn.Conv2d(1, c, 3, padding=1), nn.ReLU()]
        for _ in range(depth):
            layers += [nn.Conv2d(c, c, 3, padding=1, bias=False), nn.BatchNorm2d(c), nn.ReLU()]
        layers.append(nn.Conv2d(c, 1, 3, padding=1))
        self.net = nn.Sequential(*layers)

    def forward(self, x):
        return x - self.net(x)


def images(n=6, size=14):
    rng = np.random.default_rng(0)
    coarse = torch.from_numpy(rng.random((n, 1, 4, 4))).float()
    return F.interpolate(coarse, size=(size, size), mode="bilinear", align_corners=False)


def main():
    torch.manual_seed(2)
    model = DnCNN()
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    clean = images()
    for step in range(30):
        noisy = clean + 0.15 * torch.randn_like(clean)
        restored = model(noisy)
        pixel = F.mse_loss(restored, clean)
        structure = 1 - ssim(restored, clean)
        loss = pixel + 0.1 * structure
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 10 == 0:
            print(f"{step}: mse {pixel.item():.4f} 1-ssim {structure.item():.4f}")


if __name__ == "__main__":
    main()
