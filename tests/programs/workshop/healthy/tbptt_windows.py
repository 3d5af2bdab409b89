import torch
import torch.nn as nn
import torch.nn.functional as F


class CharRNN(nn.Module):
    def __init__(self, n=20, d=32):
        super().__init__()
        self.emb = nn.Embedding(n, d)
        self.rnn = nn.LSTM(d, d, num_layers=2)
        self.out = nn.Linear(d, n)

    def forward(self, x, state):
        h, state = self.rnn(self.emb(x), state)
        return self.out(h), state


def repackage(state):
    return tuple(s.detach() for s in state)


torch.manual_seed(0)
model = CharRNN()
opt = torch.optim.SGD(model.parameters(), lr=1.0)
stream = torch.arange(0, 1200 * 3, 3).remainder(20).view(8, -1).t()
for epoch in range(3):
    state = (torch.zeros(2, 8, 32), torch.zeros(2, 8, 32))
    for i in range(0, stream.size(0) - 11, 10):
        state = repackage(state)
        out, state = model(stream[i : i + 10], state)
        loss = F.cross_entropy(out.flatten(0, 1), stream[i + 1 : i + 11].flatten())
        model.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 0.25)
        opt.step()
    print(epoch, loss.item())
