import torch
import torch.nn as nn
import torch.nn.functional as F


class ConvNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(1, 12, 5, padding=2)
        self.conv2 = nn.Conv2d(12, 24, 3, stride=2, padding=1)
        self.fc = nn.Linear(24 * 6 * 6, 2)

    def forward(self, x):
        x = F.relu(self.conv1(x))
        x = F.relu(self.conv2(x))
        return self.fc(x.flatten(1))


class PGD:
    def __init__(self, model, eps=0.2, alpha=0.08, steps=3):
        self.model, self.eps, self.alpha, self.steps = model, eps, alpha, steps

    def perturb(self, x, y):
        delta = torch.empty_like(x).uniform_(-self.eps, self.eps).requires_grad_(True)
        for _ in range(self.steps):
            loss = F.cross_entropy(self.model(x + delta), y)
            grad = torch.autograd.grad(loss, delta)[0]
            delta.data = (delta + self.alpha * grad.sign()).clamp(-self.eps, self.eps)
        return (x + delta).detach()


def blobs(count):
    labels = torch.randint(0, 2, (count,))
    images = 0.4 * torch.randn(count, 1, 12, 12)
    images[labels == 0, :, 2:6, 2:6] += 1.0
    images[labels == 1, :, 6:10, 6:10] += 1.0
    return images, labels


def accuracy(model, x, y):
    with torch.no_grad():
        return (model(x).argmax(1) == y).float().mean().item()


def main():
    torch.manual_seed(31)
    model = ConvNet()
    attack = PGD(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.02, momentum=0.9)
    for step in range(30):
        x, y = blobs(32)
        optimizer.zero_grad()
        adversarial = attack.perturb(x, y)
        clean_loss = F.cross_entropy(model(x), y)
        adversarial_loss = F.cross_entropy(model(adversarial), y)
        loss = 0.5 * clean_loss + 0.5 * adversarial_loss
        loss.backward()
        optimizer.step()
        if step % 10 == 0:
            print(step, round(loss.item(), 4), accuracy(model, x, y), accuracy(model, adversarial, y))


if __name__ == "__main__":
    main()
