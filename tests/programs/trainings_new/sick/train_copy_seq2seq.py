import torch
from torch import nn
import torch.nn.functional as F

VOCAB, START = 12, 0


def repackage(h):
    if isinstance(h, torch.Tensor):
        return h.detach()
    return tuple(repackage(v) for v in h)


class Seq2Seq(nn.Module):
    def __init__(self, d=32):
        super().__init__()
        self.source = nn.Embedding(VOCAB, d)
        self.target = nn.Embedding(VOCAB, d)
        self.encoder = nn.LSTM(d, d, batch_first=True)
        self.decoder = nn.LSTM(d, d, batch_first=True)
        self.out = nn.Linear(d, VOCAB)

    def forward(self, source, target, teacher_forcing=True):
        _, state = self.encoder(self.source(source))
        state = repackage(state)
        token = torch.full((len(source), 1), START)
        logits = []
        for t in range(target.shape[1]):
            h, state = self.decoder(self.target(token), state)
            logits.append(self.out(h))
            token = target[:, t:t + 1] if teacher_forcing else logits[-1].argmax(-1)
        return torch.cat(logits, 1)


torch.manual_seed(51)
model = Seq2Seq()
optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
for step in range(60):
    source = torch.randint(1, VOCAB, (32, 4))
    logits = model(source, source)
    loss = F.cross_entropy(logits.reshape(-1, VOCAB), source.reshape(-1))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 15 == 14:
        print(step, loss.item())
