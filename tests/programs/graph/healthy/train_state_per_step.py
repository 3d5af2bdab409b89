"""Counts the ones in a stream of bits with a hand-written recurrent loop."""

import torch
from torch import nn


class Counter(nn.Module):
    def __init__(self, width=24):
        super().__init__()
        self.cell = nn.GRUCell(1, width)
        self.read = nn.Linear(width, 1)
        self.width = width

    def forward(self, bits):
        state = bits.new_zeros(len(bits), self.width)
        for position in range(bits.shape[1]):
            state = self.cell(bits[:, position : position + 1], state)
        return self.read(state).squeeze(1)


def main():
    torch.manual_seed(0)
    model = Counter()
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    for step in range(40):
        bits = (torch.rand(64, 12) > 0.5).float()
        loss = nn.functional.mse_loss(model(bits), bits.sum(1) / 12)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 10 == 0:
            print(step, round(loss.item(), 4))


if __name__ == "__main__":
    main()
