import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(4)
VOCAB, PAD, BUDGET = 30, 0, 220


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(VOCAB, 24, padding_idx=PAD)
        self.rnn = nn.GRU(24, 32, batch_first=True)
        self.out = nn.Linear(32, VOCAB)

    def forward(self, x):
        return self.out(self.rnn(self.embed(x))[0])


def sentences():
    while True:
        n = int(torch.randint(3, 20, (1,)))
        size = int(torch.randint(2, 9, (1,)))
        start = torch.randint(1, VOCAB, (size, 1))
        ids = (start + 2 * torch.arange(n + 1)) % (VOCAB - 1) + 1
        ids[:, n // 2 + 1 :][torch.rand(size) < 0.3] = PAD
        yield ids


net = Net()
optimizer = torch.optim.AdamW(net.parameters(), lr=5e-3)
seen, updates = 0, 0
for ids in sentences():
    logits = net(ids[:, :-1])
    loss = F.cross_entropy(logits.flatten(0, 1), ids[:, 1:].flatten(), ignore_index=PAD, reduction="sum")
    loss.backward()
    seen += int((ids[:, 1:] != PAD).sum())
    if seen < BUDGET:
        continue
    for p in net.parameters():
        p.grad /= seen
    nn.utils.clip_grad_norm_(net.parameters(), 1.0)
    optimizer.step()
    optimizer.zero_grad(set_to_none=False)
    seen, updates = 0, updates + 1
    if updates % 20 == 0:
        print(updates, loss.item() / ids.numel())
    if updates == 80:
        break
