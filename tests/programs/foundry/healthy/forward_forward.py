"""Forward-forward: every layer is trained by its own goodness, no gradient passes between layers."""
import torch
import torch.nn.functional as F
from torch import nn


class LocalLayer(nn.Module):
    def __init__(self, n_in, n_out, threshold=1.0, lr=0.005):
        super().__init__()
        self.linear = nn.Linear(n_in, n_out)
        self.threshold = threshold
        self.optimizer = torch.optim.Adam(self.linear.parameters(), lr=lr)

    def forward(self, x):
        direction = x / (x.norm(2, 1, keepdim=True) + 1e-4)
        return torch.relu(self.linear(direction))

    def learn(self, positive, negative):
        g_pos = self(positive).pow(2).mean(1)
        g_neg = self(negative).pow(2).mean(1)
        loss = F.softplus(torch.cat([self.threshold - g_pos, g_neg - self.threshold])).mean()
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        return self(positive).detach(), self(negative).detach(), loss.item()


class ForwardForward(nn.Module):
    def __init__(self, sizes=(24, 48, 48)):
        super().__init__()
        self.layers = nn.ModuleList(LocalLayer(a, b) for a, b in zip(sizes[:-1], sizes[1:]))

    def learn(self, positive, negative):
        losses = []
        for layer in self.layers:
            positive, negative, loss = layer.learn(positive, negative)
            losses.append(loss)
        return losses

    @torch.no_grad()
    def goodness(self, x):
        total = 0.0
        for layer in self.layers:
            x = layer(x)
            total = total + x.pow(2).mean(1)
        return total


def overlay(x, y, classes=4):
    return torch.cat([F.one_hot(y, classes).float(), x], 1)


def clusters(n):
    y = torch.randint(0, 4, (n,))
    x = torch.randn(n, 20)
    x[torch.arange(n), y * 3] += 3
    return x, y


def main():
    torch.manual_seed(308)
    net = ForwardForward()
    for step in range(30):
        x, y = clusters(96)
        wrong = (y + torch.randint(1, 4, y.shape)) % 4
        losses = net.learn(overlay(x, y), overlay(x, wrong))
        if step % 10 == 0:
            print(step, " ".join(f"{v:.4f}" for v in losses))
    x, y = clusters(200)
    scores = torch.stack([net.goodness(overlay(x, torch.full_like(y, k))) for k in range(4)], 1)
    print(f"accuracy {(scores.argmax(1) == y).float().mean().item():.3f}")


if __name__ == "__main__":
    main()
