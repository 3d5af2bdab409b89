import warnings
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.checkpoint import checkpoint

warnings.filterwarnings("ignore")


class Block(nn.Module):
    def __init__(self, dim, heads=2):
        super().__init__()
        self.ln1 = nn.LayerNorm(dim)
        self.attn = nn.MultiheadAttention(dim, heads, batch_first=True)
        self.ln2 = nn.LayerNorm(dim)
        self.mlp = nn.Sequential(nn.Linear(dim, 2 * dim), nn.GELU(), nn.Linear(2 * dim, dim))

    def forward(self, x):
        h = self.ln1(x)
        x = x + self.attn(h, h, h, need_weights=False)[0]
        return x + self.mlp(self.ln2(x))


class Encoder(nn.Module):
    def __init__(self, vocab=50, dim=32, depth=2):
        super().__init__()
        self.embed = nn.Embedding(vocab, dim)
        self.blocks = nn.ModuleList([Block(dim) for _ in range(depth)])
        self.head = nn.Linear(dim, 2)
        self.gradient_checkpointing = False

    def forward(self, ids):
        x = self.embed(ids)
        for block in self.blocks:
            if self.gradient_checkpointing and self.training:
                x = checkpoint(block, x, use_reentrant=False)
            else:
                x = block(x)
        return self.head(x.mean(1))


def main():
    torch.manual_seed(3)
    model = Encoder()
    # word vectors come from a public table
    model.embed.load_state_dict({"weight": torch.randn(50, 32) * 0.5})
    model.embed.weight.requires_grad_(False)
    model.gradient_checkpointing = True
    before = model.blocks[0].mlp[0].weight.clone()
    opt = torch.optim.AdamW(filter(lambda p: p.requires_grad, model.parameters()), lr=3e-3)
    for step in range(60):
        ids = torch.randint(0, 50, (32, 12))
        labels = ((ids[:, 0] > 25) ^ (ids[:, 1] > 25)).long()
        loss = F.cross_entropy(model(ids), labels)
        opt.zero_grad()
        loss.backward()
        opt.step()
        if step % 20 == 0:
            print(step, round(loss.item(), 4))
    print("moved", (model.blocks[0].mlp[0].weight - before).abs().max().item())


main()
