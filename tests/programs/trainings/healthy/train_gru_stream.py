"""Delayed echo of a stream of bits, trained with truncated back-propagation through time."""
import torch
import torch.nn as nn
import torch.nn.functional as F

DELAY, CHUNK, BATCH = 4, 12, 32


class Echo(nn.Module):
    def __init__(self, hidden=32):
        super().__init__()
        self.cell = nn.GRUCell(1, hidden)
        self.readout = nn.Linear(hidden, 1)

    def initial(self):
        return torch.zeros(BATCH, self.cell.hidden_size)

    def forward(self, chunk, h):
        h = h.detach()
        outs = []
        for x in chunk.unbind(0):
            h = self.cell(x, h)
            outs.append(self.readout(h))
        return torch.stack(outs), h


def stream(chunks, g):
    bits = torch.randint(0, 2, (chunks * CHUNK + DELAY, BATCH, 1), generator=g).float()
    for c in range(chunks):
        lo = c * CHUNK
        yield bits[lo + DELAY:lo + DELAY + CHUNK], bits[lo:lo + CHUNK]


def main():
    torch.manual_seed(191)
    net = Echo()
    optimizer = torch.optim.Adam(net.parameters(), lr=1e-2)
    h = net.initial()
    for k, (x, y) in enumerate(stream(160, torch.Generator().manual_seed(192))):
        out, h = net(x, h)
        loss = F.binary_cross_entropy_with_logits(out, y)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        optimizer.step()
        if k % 20 == 0:
            print(f"chunk {k} loss {loss.item():.4f}")


main()
