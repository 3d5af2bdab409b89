"""Token predictor with a sparse mixture of experts."""
import torch
import torch.nn.functional as F
from torch import nn

VOCAB, DIM = 20, 24


class Expert(nn.Module):
    def __init__(self):
        super().__init__()
        self.up, self.down = nn.Linear(DIM, 2 * DIM), nn.Linear(2 * DIM, DIM)

    def forward(self, x):
        return self.down(F.gelu(self.up(x)))


class SparseMoE(nn.Module):
    def __init__(self, experts=4, chosen=2):
        super().__init__()
        self.router = nn.Linear(DIM, experts, bias=False)
        self.experts = nn.ModuleList(Expert() for _ in range(experts))
        self.chosen = chosen

    def forward(self, x):
        scores = self.router(x)
        top, index = scores.topk(self.chosen, dim=-1)
        weight = top.softmax(-1)
        gates = torch.zeros_like(scores).scatter(-1, index, 1.0 / self.chosen)
        out = torch.zeros_like(x)
        for e, expert in enumerate(self.experts):
            rows = (gates[..., e] > 0).nonzero(as_tuple=True)
            if len(rows[0]):
                update = expert(x[rows]) * gates[rows][:, e, None]
                out = out.index_put(rows, update, accumulate=True)
        return out


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(DIM), nn.LayerNorm(DIM)
        self.attn = nn.MultiheadAttention(DIM, 4, batch_first=True)
        self.moe = SparseMoE()

    def forward(self, x, mask):
        h = self.norm1(x)
        x = x + self.attn(h, h, h, attn_mask=mask, need_weights=False)[0]
        return x + self.moe(self.norm2(x))


class LM(nn.Module):
    def __init__(self):
        super().__init__()
        self.tok, self.pos = nn.Embedding(VOCAB, DIM), nn.Embedding(32, DIM)
        self.blocks = nn.ModuleList(Block() for _ in range(2))
        self.out = nn.Linear(DIM, VOCAB)

    def forward(self, ids):
        length = ids.size(1)
        mask = torch.triu(torch.ones(length, length, dtype=torch.bool), 1)
        x = self.tok(ids) + self.pos(torch.arange(length))
        for block in self.blocks:
            x = block(x, mask)
        return self.out(x)


def main():
    torch.manual_seed(103)
    model = LM()
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    for step in range(25):
        start, stride = torch.randint(0, VOCAB, (24, 1)), torch.randint(1, 4, (24, 1))
        ids = (start + stride * torch.arange(17)) % VOCAB
        logits = model(ids[:, :-1])
        loss = F.cross_entropy(logits.flatten(0, 1), ids[:, 1:].flatten())
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        if step % 8 == 0:
            print(f"step {step} loss {loss.item():.3f}")


if __name__ == "__main__":
    main()
