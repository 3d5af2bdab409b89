import torch
import torch.nn as nn
import torch.nn.functional as F


class Config:
    micro_batch = 4
    accumulation_steps = 8
    lr = 0.02
    updates = 25


class CharModel(nn.Module):
    def __init__(self, vocab=20, d=24):
        super().__init__()
        self.embed = nn.Embedding(vocab, d)
        self.gru = nn.GRU(d, d, batch_first=True)
        self.out = nn.Linear(d, vocab)

    def forward(self, t):
        return self.out(self.gru(self.embed(t))[0])


torch.manual_seed(4)
cfg = Config()
model = CharModel()
optimizer = torch.optim.SGD(model.parameters(), lr=cfg.lr * 8, momentum=0.9)
for update in range(cfg.updates):
    optimizer.zero_grad()
    shown = 0.0
    for _ in range(cfg.accumulation_steps):
        start = torch.randint(0, 20, (cfg.micro_batch, 1))
        text = (start + torch.arange(11)) % 20
        logits = model(text[:, :-1])
        loss = F.cross_entropy(logits.reshape(-1, 20), text[:, 1:].reshape(-1))
        loss.backward()
        shown += loss.item()
    optimizer.step()
    print(update, f"{shown:.3f}")
