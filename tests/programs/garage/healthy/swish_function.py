import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class SwishFunction(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, beta):
        gate = torch.sigmoid(beta * x)
        ctx.save_for_backward(x, beta, gate)
        return x * gate

    @staticmethod
    def backward(ctx, grad_output):
        x, beta, gate = ctx.saved_tensors
        slope = gate * (1 - gate)
        grad_x = grad_output * (gate + beta * x * slope)
        grad_beta = (grad_output * x * x * slope).sum()
        return grad_x, grad_beta


class Swish(nn.Module):
    def __init__(self):
        super().__init__()
        self.beta = nn.Parameter(torch.ones(()))

    def forward(self, x):
        return SwishFunction.apply(x, self.beta)


class SqueezeExcite(nn.Module):
    def __init__(self, channels, reduction=4):
        super().__init__()
        self.fc1 = nn.Conv2d(channels, channels // reduction, 1)
        self.act = Swish()
        self.fc2 = nn.Conv2d(channels // reduction, channels, 1)

    def forward(self, x):
        s = self.fc2(self.act(self.fc1(x.mean((2, 3), keepdim=True))))
        return x * torch.sigmoid(s)


class MBConv(nn.Module):
    def __init__(self, inputs, outputs, expand=2):
        super().__init__()
        hidden = inputs * expand
        self.body = nn.Sequential(
            nn.Conv2d(inputs, hidden, 1, bias=False),
            nn.BatchNorm2d(hidden),
            Swish(),
            nn.Conv2d(hidden, hidden, 3, padding=1, groups=hidden, bias=False),
            nn.BatchNorm2d(hidden),
            Swish(),
            SqueezeExcite(hidden),
            nn.Conv2d(hidden, outputs, 1, bias=False),
            nn.BatchNorm2d(outputs),
        )
        self.skip = inputs == outputs

    def forward(self, x):
        return x + self.body(x) if self.skip else self.body(x)


def build():
    return nn.Sequential(
        nn.Conv2d(1, 8, 3, stride=2, padding=1),
        MBConv(8, 8),
        MBConv(8, 16),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(16, 3),
    )


def main():
    torch.manual_seed(15)
    labels = torch.randint(0, 3, (192,))
    images = torch.randn(192, 1, 12, 12) * 0.5
    images[:, 0, :4] += (labels == 0).float()[:, None, None]
    images[:, 0, 8:] += (labels == 1).float()[:, None, None]
    loader = DataLoader(TensorDataset(images, labels), batch_size=32, shuffle=True)
    model = build()
    optimizer = torch.optim.RMSprop(model.parameters(), lr=1e-3, momentum=0.9)
    for epoch in range(4):
        for x, y in loader:
            loss = nn.functional.cross_entropy(model(x), y, label_smoothing=0.1)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        print(epoch, round(loss.item(), 4))


if __name__ == "__main__":
    main()
