import torch
import torch.nn as nn
import torch.nn.functional as F


class Expert(nn.Sequential):
    def __init__(self, dim):
        super().__init__(nn.Linear(dim, 2 * dim), nn.GELU(), nn.Linear(2 * dim, dim))


class SwitchFeedForward(nn.Module):
    def __init__(self, dim, experts):
        super().__init__()
        self.router = nn.Linear(dim, experts, bias=False)
        self.experts = nn.ModuleList(Expert(dim) for _ in range(experts))
        self.balance = None

    def forward(self, x):
        shape = x.shape
        tokens = x.reshape(-1, shape[-1])
        probs = self.router(tokens).softmax(dim=-1)
        gate, chosen = probs.max(dim=-1)
        out = torch.zeros_like(tokens)
        for i, expert in enumerate(self.experts):
            rows = (chosen == i).nonzero(as_tuple=True)[0]
            if rows.numel():
                out = out.index_add(0, rows, expert(tokens[rows]))
        share = F.one_hot(chosen, len(self.experts)).float().mean(dim=0)
        self.balance = len(self.experts) * (share * share).sum()
        return out.reshape(shape)


class Block(nn.Module):
    def __init__(self, dim, heads, experts):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.attention = nn.MultiheadAttention(dim, heads, batch_first=True)
        self.feed = SwitchFeedForward(dim, experts)

    def forward(self, x):
        y = self.norm1(x)
        x = x + self.attention(y, y, y, need_weights=False)[0]
        return x + self.feed(self.norm2(x))


class Tagger(nn.Module):
    def __init__(self, vocab=30, dim=32, classes=5, depth=2):
        super().__init__()
        self.embed = nn.Embedding(vocab, dim)
        self.blocks = nn.ModuleList(Block(dim, 4, 4) for _ in range(depth))
        self.head = nn.Linear(dim, classes)

    def forward(self, tokens):
        x = self.embed(tokens)
        for block in self.blocks:
            x = block(x)
        return self.head(x)

    def balance(self):
        return sum(block.feed.balance for block in self.blocks)


if __name__ == "__main__":
    torch.manual_seed(8)
    model = Tagger()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for step in range(30):
        tokens = torch.randint(0, 30, (16, 10))
        tags = (tokens + tokens.roll(1, dims=1)) % 5
        logits = model(tokens)
        loss = F.cross_entropy(logits.transpose(1, 2), tags) + 0.01 * model.balance()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 10 == 0:
            print(step, loss.item())
