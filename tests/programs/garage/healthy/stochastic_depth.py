import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint


class Block(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.attention = nn.MultiheadAttention(dim, 4, dropout=0.1, batch_first=True)
        self.feed = nn.Sequential(nn.Linear(dim, 2 * dim), nn.GELU(), nn.Dropout(0.1), nn.Linear(2 * dim, dim))

    def forward(self, x):
        h = self.norm1(x)
        x = x + self.attention(h, h, h, need_weights=False)[0]
        return x + self.feed(self.norm2(x))


class DeepNet(nn.Module):
    def __init__(self, features=6, dim=32, depth=5, classes=3, drop=0.3, exits=(1, 3)):
        super().__init__()
        self.stem = nn.Linear(features, dim)
        self.token = nn.Parameter(torch.zeros(1, 1, dim))
        self.blocks = nn.ModuleList(Block(dim) for _ in range(depth))
        self.exits = nn.ModuleDict({str(i): nn.Linear(dim, classes) for i in exits})
        self.head = nn.Linear(dim, classes)
        self.drop = drop

    def forward(self, x):
        x = self.stem(x)
        x = torch.cat([self.token.expand(x.size(0), -1, -1), x], dim=1)
        early = []
        for i, block in enumerate(self.blocks):
            if self.training:
                if torch.rand(()) < self.drop * i / len(self.blocks):
                    continue
                x = checkpoint(block, x, use_reentrant=False)
            else:
                x = block(x)
            if str(i) in self.exits:
                early.append(self.exits[str(i)](x[:, 0]))
        return self.head(x[:, 0]), early


def sequences(count, length=8):
    label = torch.randint(0, 3, (count,))
    x = torch.randn(count, length, 6)
    x[torch.arange(count), torch.randint(0, length, (count,)), label] += 4.0
    return x, label


def main():
    torch.manual_seed(52)
    model = DeepNet()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=0.05)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=2e-3, total_steps=40)
    for step in range(40):
        x, y = sequences(32)
        logits, early = model(x)
        loss = F.cross_entropy(logits, y)
        for other in early:
            loss = loss + 0.3 * F.cross_entropy(other, y)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        if step % 10 == 9:
            model.eval()
            with torch.no_grad():
                hits = (model(x)[0].argmax(1) == y).float().mean().item()
            model.train()
            print(f"{step} loss {loss.item():.4f} accuracy {hits:.3f}")


main()
