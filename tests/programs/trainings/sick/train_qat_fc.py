"""Quantisation-aware training of a small fully connected net (4 bit weights)."""
import torch
import torch.nn as nn
import torch.nn.functional as F


def fake_quant(w, bits):
    top = 2 ** (bits - 1) - 1
    scale = w.detach().abs().max().clamp_min(1e-8) / top
    q = torch.round(w / scale).clamp(-top, top) * scale
    return q


class QLinear(nn.Linear):
    bits = 4

    def forward(self, x):
        return F.linear(x, fake_quant(self.weight, self.bits), self.bias)


class QNet(nn.Module):
    def __init__(self, sizes=(16, 48, 48, 6)):
        super().__init__()
        a, b, c, d = sizes
        self.l1, self.l2, self.l3 = QLinear(a, b), QLinear(b, c), QLinear(c, d)

    def forward(self, x):
        x = F.relu(self.l1(x))
        x = F.relu(self.l2(x))
        return self.l3(x)


def main():
    torch.manual_seed(211)
    g = torch.Generator().manual_seed(212)
    centres = torch.randn(6, 16, generator=g)
    net = QNet()
    opt = torch.optim.Adam(net.parameters(), lr=3e-3)
    for step in range(120):
        y = torch.randint(0, 6, (96,), generator=g)
        x = centres[y] + torch.randn(96, 16, generator=g)
        logits = net(x)
        loss = F.cross_entropy(logits, y)
        opt.zero_grad()
        loss.backward()
        opt.step()
        if step % 20 == 0:
            print(step, f"{loss.item():.4f}", f"{(logits.argmax(1) == y).float().mean().item():.3f}")


main()
