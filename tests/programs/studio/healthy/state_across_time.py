"""Recall a bit after a delay with a recurrent cell."""

import argparse

import torch
from torch import nn
from torch.nn import functional as F


class Memory(nn.Module):
    def __init__(self, width=24):
        super().__init__()
        self.cell = nn.LSTMCell(2, width)
        self.readout = nn.Linear(width, 1)

    def start(self, batch):
        zeros = torch.zeros(batch, self.cell.hidden_size)
        return zeros, zeros.clone()

    def forward(self, window, state):
        outputs = []
        for x in window.unbind(1):
            h, c = self.cell(x, state)
            outputs.append(self.readout(h))
            state = (h, c)
        state = (h.detach(), c.detach())
        return torch.stack(outputs, 1).squeeze(-1), state


def episodes(batch, windows, window):
    length = windows * window
    bits = torch.randint(0, 2, (batch, length)).float()
    cue = torch.zeros(batch, length)
    cue[:, ::window] = 1
    target = bits[:, ::window].repeat_interleave(window, dim=1)
    return torch.stack([bits, cue], dim=2).split(window, dim=1), target.split(window, dim=1)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--episodes", type=int, default=40)
    parser.add_argument("--window", type=int, default=6)
    parser.add_argument("--windows", type=int, default=4)
    args = parser.parse_args()
    torch.manual_seed(0)
    model = Memory()
    optimizer = torch.optim.Adam(model.parameters(), lr=4e-3)
    for episode in range(args.episodes):
        inputs, targets = episodes(32, args.windows, args.window)
        state = model.start(32)
        for x, y in zip(inputs, targets, strict=True):
            out, state = model(x, state)
            loss = F.binary_cross_entropy_with_logits(out, y)
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
        if episode % 8 == 0:
            print(episode, loss.item())


if __name__ == "__main__":
    main()
