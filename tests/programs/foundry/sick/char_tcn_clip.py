"""Causal convolutions over characters with a clipped norm."""
import torch
import torch.nn.functional as F
from torch import nn

TEXT = "the quick brown fox jumps over the lazy dog while seven wizards box a mute lynx quietly " * 12
CHARS = sorted(set(TEXT))


class CausalConv(nn.Module):
    def __init__(self, channels, dilation):
        super().__init__()
        self.pad = 2 * dilation
        self.conv = nn.utils.parametrizations.weight_norm(nn.Conv1d(channels, channels, 3, dilation=dilation))

    def forward(self, x):
        return x + torch.relu(self.conv(F.pad(x, (self.pad, 0))))


class TCN(nn.Module):
    def __init__(self, channels=32, dilations=(1, 2, 4)):
        super().__init__()
        self.embed = nn.Embedding(len(CHARS), channels)
        self.embed_scale = nn.Parameter(torch.tensor(4.0), requires_grad=False)
        self.body = nn.Sequential(*(CausalConv(channels, d) for d in dilations))
        self.out = nn.Conv1d(channels, len(CHARS), 1)

    def forward(self, ids):
        return self.out(self.body(self.embed_scale * self.embed(ids).transpose(1, 2)))


def encode():
    table = {c: i for i, c in enumerate(CHARS)}
    return torch.tensor([table[c] for c in TEXT])


def crops(data, n, length=33):
    start = torch.randint(0, len(data) - length, (n,))
    return torch.stack([data[s : s + length] for s in start.tolist()])


def main(max_norm=0.5):
    torch.manual_seed(119)
    model = TCN()
    trainable = filter(lambda p: p.requires_grad, model.parameters())
    optimizer = torch.optim.SGD(trainable, lr=0.1, momentum=0.9)
    data = encode()
    for step in range(25):
        rows = crops(data, 16)
        loss = F.cross_entropy(model(rows[:, :-1]), rows[:, 1:])
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(trainable, max_norm)
        optimizer.step()
        if step % 6 == 0:
            print(step, f"{loss.item():.4f}")


if __name__ == "__main__":
    main()
