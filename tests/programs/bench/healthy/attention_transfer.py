"""Neural attention distillation of a convolutional classifier."""

import torch
from torch import nn
from torch.nn import functional as F


class ConvNet(nn.Module):
    def __init__(self, widths=(8, 12, 16), classes=4):
        super().__init__()
        layers, c_in = [], 1
        for c in widths:
            layers.append(nn.Sequential(nn.Conv2d(c_in, c, 3, padding=1), nn.BatchNorm2d(c), nn.ReLU()))
            c_in = c
        self.layers = nn.ModuleList(layers)
        self.fc = nn.Linear(c_in, classes)

    def forward(self, x):
        activations = []
        for layer in self.layers:
            x = layer(x)
            activations.append(x)
            x = F.max_pool2d(x, 2)
        return activations, self.fc(x.mean(dim=(2, 3)))


class AT(nn.Module):
    """Attention transfer of Zagoruyko and Komodakis."""

    def __init__(self, p=2):
        super().__init__()
        self.p = p

    def attention_map(self, fm, eps=1e-6):
        am = fm.abs().pow(self.p).sum(dim=1, keepdim=True)
        return am / (am.flatten(1).norm(dim=1)[:, None, None, None] + eps)

    def forward(self, fm_s, fm_t):
        return F.mse_loss(self.attention_map(fm_s), self.attention_map(fm_t))


def make_batch(n=16):
    y = torch.randint(4, (n,))
    x = 0.3 * torch.randn(n, 1, 16, 16)
    for image, label in zip(x, y):
        r, c = divmod(int(label), 2)
        image[0, 8 * r : 8 * r + 8, 8 * c : 8 * c + 8] += 1
    return x, y


def train_step(snet, tnet, optimizer, betas=(500, 1000, 1000)):
    criterion_at = AT()
    x, y = make_batch()
    act_s, out_s = snet(x)
    with torch.no_grad():
        act_t, _ = tnet(x)
    cls_loss = F.cross_entropy(out_s, y)
    at_losses = [criterion_at(s, t.detach()) * b for s, t, b in zip(act_s, act_t, betas)]
    at_loss = sum(at_losses)
    loss = cls_loss + at_loss
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return cls_loss.item(), float(at_loss)


if __name__ == "__main__":
    torch.manual_seed(5)
    teacher, student = ConvNet().eval(), ConvNet()
    opt = torch.optim.SGD(student.parameters(), lr=0.05, momentum=0.9, weight_decay=1e-4)
    for i in range(25):
        cls, at = train_step(student, teacher, opt)
        if i % 8 == 0:
            print(f"{i}: cls {cls:.4f} at {at:.4f}")
