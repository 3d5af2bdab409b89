import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.optim.lr_scheduler import LambdaLR


class CharMixer(nn.Module):
    def __init__(self, n=27, d=24, ctx=6):
        super().__init__()
        self.emb = nn.Embedding(n, d)
        self.mix = nn.Linear(ctx * d, 96)
        self.out = nn.Linear(96, n)

    def forward(self, idx):
        return self.out(torch.tanh(self.mix(self.emb(idx).flatten(1))))


def warmup_then_constant(optimizer, warmup):
    def factor(step):
        return min(1.0, (step + 1) / warmup)

    return LambdaLR(optimizer, factor)


def batches(n, ctx=6, size=64):
    for _ in range(n):
        start = torch.randint(0, 27, (size, 1))
        seq = (start + torch.arange(ctx + 1) * 2) % 27
        yield seq[:, :-1], seq[:, -1]


torch.manual_seed(0)
model = CharMixer()
opt = torch.optim.AdamW(model.parameters(), lr=1e-2)
sched = warmup_then_constant(opt, warmup=200)
for step, (ctx, nxt) in enumerate(batches(100)):
    loss = F.cross_entropy(model(ctx), nxt)
    opt.zero_grad()
    loss.backward()
    opt.step()
    sched.step()
    if step % 20 == 0:
        print(step, loss.item(), sched.get_last_lr())
