import warnings

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

warnings.filterwarnings("ignore")


class Adapter(nn.Module):
    def __init__(self, dim, bottleneck=8):
        super().__init__()
        self.down = nn.Linear(dim, bottleneck)
        self.up = nn.Linear(bottleneck, dim)
        nn.init.normal_(self.up.weight, std=1e-2)
        nn.init.zeros_(self.up.bias)

    def forward(self, x):
        return x + self.up(torch.relu(self.down(x)))


class Block(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.norm = nn.LayerNorm(dim)
        self.mix = nn.GRU(dim, dim, batch_first=True)
        self.feed = nn.Sequential(nn.Linear(dim, 2 * dim), nn.GELU(), nn.Linear(2 * dim, dim))
        self.adapter = Adapter(dim)

    def forward(self, x):
        x = x + self.mix(self.norm(x))[0]
        return self.adapter(x + self.feed(x))


class Encoder(nn.Module):
    def __init__(self, vocab=50, dim=32, depth=3, classes=2):
        super().__init__()
        self.embed = nn.Embedding(vocab, dim)
        self.blocks = nn.ModuleList(Block(dim) for _ in range(depth))
        self.head = nn.Linear(dim, classes)
        self.checkpointing = True

    def forward(self, ids):
        x = self.embed(ids)
        for block in self.blocks:
            if self.checkpointing and self.training:
                x = checkpoint(block, x, use_reentrant=False)
            else:
                x = block(x)
        return self.head(x.mean(dim=1))


def freeze_base(model):
    for name, parameter in model.named_parameters():
        parameter.requires_grad = "adapter" in name or name.startswith("head")


def sentences(count):
    ids = torch.randint(0, 50, (count, 12))
    return ids, ((ids < 10).sum(dim=1) > 2).long()


def main():
    torch.manual_seed(21)
    model = Encoder()
    freeze_base(model)
    optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=2e-3)
    for step in range(20):
        ids, labels = sentences(32)
        loss = nn.functional.cross_entropy(model(ids), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 5 == 0:
            print(step, f"{loss.item():.4f}")


main()
