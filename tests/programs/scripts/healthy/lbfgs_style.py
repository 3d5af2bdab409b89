import torch
import torch.nn as nn
import torch.nn.functional as F


def features():
    torch.manual_seed(40)
    net = nn.Sequential(nn.Conv2d(1, 8, 3, padding=1), nn.Tanh(), nn.Conv2d(8, 12, 3, stride=2, padding=1), nn.Tanh(), nn.Conv2d(12, 12, 3, padding=1))
    return net.eval().requires_grad_(False)


def gram(x):
    flat = x.flatten(2)
    return flat @ flat.transpose(1, 2) / flat.shape[-1]


class Synthesiser(nn.Module):
    def __init__(self, style, content):
        super().__init__()
        self.net = features()
        with torch.no_grad():
            self.register_buffer("style", gram(self.net(style)))
            self.register_buffer("content", self.net(content))
        self.image = nn.Parameter(content.clone() + 0.1 * torch.randn_like(content))

    def losses(self):
        out = self.net(self.image)
        return F.mse_loss(gram(out), self.style) * 100, F.mse_loss(out, self.content)


def run(steps=12):
    torch.manual_seed(41)
    grid = torch.linspace(0, 12, 24)
    style = (torch.sin(grid)[:, None] * torch.cos(grid)[None, :]).view(1, 1, 24, 24)
    content = torch.rand(1, 1, 24, 24)
    model = Synthesiser(style, content)
    optimizer = torch.optim.LBFGS([model.image], lr=0.5, max_iter=6, history_size=10)
    history = []

    def closure():
        optimizer.zero_grad()
        a, b = model.losses()
        loss = a + b
        loss.backward()
        history.append(loss.item())
        return loss

    for step in range(steps):
        optimizer.step(closure)
        print(step, history[-1])


run()
