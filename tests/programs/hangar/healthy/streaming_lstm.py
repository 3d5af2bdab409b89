import torch
import torch.nn as nn
import torch.nn.functional as F


class State:
    def __init__(self, hidden=None, cell=None):
        self.hidden, self.cell = hidden, cell

    def as_tuple(self):
        return None if self.hidden is None else (self.hidden, self.cell)

    def carried(self):
        if self.hidden is None:
            return self
        return State(self.hidden.detach(), self.cell.detach())


class SpeechStream(nn.Module):
    def __init__(self, bands=10, width=32, phones=7):
        super().__init__()
        self.rnn = nn.LSTM(bands, width, batch_first=True)
        self.head = nn.Linear(width, phones)

    def forward(self, frames, state):
        output, (hidden, cell) = self.rnn(frames, state.as_tuple())
        return self.head(output), State(hidden, cell)


def recording(seconds, generator):
    phones = torch.randint(0, 7, (4, seconds * 5), generator=generator).repeat_interleave(4, dim=1)
    codes = torch.randn(7, 10, generator=torch.Generator().manual_seed(0))
    frames = codes[phones] + 0.5 * torch.randn(4, phones.size(1), 10, generator=generator)
    return frames, phones


def train_on(model, optimizer, frames, phones, chunk=20):
    state, losses = State(), []
    for part, label in zip(frames.split(chunk, dim=1), phones.split(chunk, dim=1)):
        logits, state = model(part, state.carried())
        loss = F.cross_entropy(logits.flatten(0, 1), label.flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return sum(losses) / len(losses)


if __name__ == "__main__":
    torch.manual_seed(0)
    source = torch.Generator().manual_seed(1)
    network = SpeechStream()
    adam = torch.optim.Adam(network.parameters(), lr=5e-3)
    for epoch in range(6):
        print(epoch, train_on(network, adam, *recording(10, source)))
