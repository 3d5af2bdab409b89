import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(13)


class Frozen(nn.Module):
    def __init__(self, vocab=40, dim=32):
        super().__init__()
        self.embed = nn.Embedding(vocab, dim)
        layer = nn.TransformerEncoderLayer(dim, 4, 64, dropout=0.0, batch_first=True)
        self.body = nn.TransformerEncoder(layer, 2)
        self.head = nn.Linear(dim, 2)

    def forward(self, embedded):
        return self.head(self.body(embedded).mean(1))


class PromptTuned(nn.Module):
    def __init__(self, base, length=6):
        super().__init__()
        self.base = base.requires_grad_(False).eval()
        self.prompt = nn.Parameter(torch.randn(length, 32) * 0.5)

    def forward(self, ids):
        words = self.base.embed(ids)
        prompt = self.prompt.expand(len(ids), -1, -1)
        return self.base(torch.cat([prompt, words], 1))


model = PromptTuned(Frozen())
optimizer = torch.optim.Adam([model.prompt], lr=0.05)
for step in range(60):
    ids = torch.randint(40, (32, 8))
    label = (ids.float().mean(1) > 12).long()
    loss = F.cross_entropy(model(ids), label)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 20 == 0:
        print(step, round(loss.item(), 4))
