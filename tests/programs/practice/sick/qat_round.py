import torch
import torch.nn.functional as F
from torch import nn


def fake_quantize(w, bits=4):
    scale = w.detach().abs().max() / (2 ** (bits - 1) - 1)
    q = torch.round(w / scale) * scale
    return q


class QLinear(nn.Linear):
    def forward(self, x):
        return F.linear(x, fake_quantize(self.weight), self.bias)


class QConv(nn.Conv2d):
    def forward(self, x):
        return self._conv_forward(x, fake_quantize(self.weight), self.bias)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = QConv(1, 8, 3, padding=1)
        self.conv2 = QConv(8, 16, 3, stride=2, padding=1)
        self.fc = QLinear(16 * 25, 3)

    def forward(self, x):
        x = F.relu(self.conv1(x))
        x = F.relu(self.conv2(x))
        return self.fc(x.flatten(1))


def batch(n=32):
    labels = torch.randint(0, 3, (n,))
    images = 0.3 * torch.randn(n, 1, 10, 10)
    images[labels == 0, :, :5] += 1
    images[labels == 1, :, :, :5] += 1
    return images, labels


def main():
    torch.manual_seed(33)
    model = Net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    for step in range(60):
        images, labels = batch()
        loss = F.cross_entropy(model(images), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 20 == 0:
            print(step, loss.item())


if __name__ == "__main__":
    main()
