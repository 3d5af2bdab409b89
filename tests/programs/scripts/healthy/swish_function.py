import torch
import torch.nn as nn


class SwishFunction(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * torch.sigmoid(x)

    @staticmethod
    def backward(ctx, grad_output):
        (x,) = ctx.saved_tensors
        s = torch.sigmoid(x)
        return grad_output * s * (1 + x * (1 - s))


class Swish(nn.Module):
    def forward(self, x):
        return SwishFunction.apply(x)


class SqueezeExcite(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.reduce, self.expand = nn.Conv2d(c, c // 2, 1), nn.Conv2d(c // 2, c, 1)
        self.act = Swish()

    def forward(self, x):
        s = x.mean((2, 3), keepdim=True)
        return x * torch.sigmoid(self.expand(self.act(self.reduce(s))))


class MBConv(nn.Module):
    def __init__(self, c, expand=2):
        super().__init__()
        w = c * expand
        self.layers = nn.Sequential(
            nn.Conv2d(c, w, 1, bias=False), nn.BatchNorm2d(w), Swish(),
            nn.Conv2d(w, w, 3, padding=1, groups=w, bias=False), nn.BatchNorm2d(w), Swish(),
            SqueezeExcite(w), nn.Conv2d(w, c, 1, bias=False), nn.BatchNorm2d(c),
        )

    def forward(self, x):
        return x + self.layers(x)


def efficientnet(classes=5):
    return nn.Sequential(nn.Conv2d(1, 8, 3, 2, 1), nn.BatchNorm2d(8), Swish(), MBConv(8), MBConv(8), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Dropout(0.1), nn.Linear(8, classes))


torch.manual_seed(110)
model = efficientnet()
optimizer = torch.optim.RMSprop(model.parameters(), lr=2e-3, alpha=0.9, momentum=0.9)
patterns = torch.randn(5, 1, 12, 12)
for step in range(60):
    label = torch.randint(0, 5, (24,))
    image = patterns[label] + 0.4 * torch.randn(24, 1, 12, 12)
    loss = nn.functional.cross_entropy(model(image), label)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 15 == 0:
        print(step, loss.item())
