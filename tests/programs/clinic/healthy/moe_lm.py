import torch
import torch.nn.functional as F
from torch import nn

VOCABULARY, CONTEXT = 24, 16


class Experts(nn.Module):
    def __init__(self, dim, count=4):
        super().__init__()
        self.count = count
        self.router = nn.Linear(dim, count)
        self.up = nn.Parameter(torch.randn(count, dim, 2 * dim) / dim**0.5)
        self.down = nn.Parameter(torch.randn(count, 2 * dim, dim) / (2 * dim) ** 0.5)
        self.balance = None

    def forward(self, x):
        gates = self.router(x).softmax(dim=-1)
        weight, chosen = gates.max(dim=-1)
        share = F.one_hot(chosen, self.count).float().mean(dim=(0, 1))
        self.balance = self.count * (share * gates.mean(dim=(0, 1))).sum()
        hidden = torch.einsum("btd,edh->bteh", x, self.up).relu()
        output = torch.einsum("bteh,ehd->bted", hidden, self.down)
        picked = output.gather(2, chosen[..., None, None].expand(-1, -1, 1, x.shape[-1]))
        return weight[..., None] * picked.squeeze(2)


class Layer(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.qkv = nn.Linear(dim, 3 * dim)
        self.proj = nn.Linear(dim, dim)
        self.experts = Experts(dim)

    def forward(self, x):
        q, k, v = self.qkv(self.norm1(x)).chunk(3, dim=-1)
        x = x + self.proj(F.scaled_dot_product_attention(q, k, v, is_causal=True))
        return x + self.experts(self.norm2(x))


class LanguageModel(nn.Module):
    def __init__(self, dim=32, depth=2):
        super().__init__()
        self.tokens = nn.Embedding(VOCABULARY, dim)
        self.positions = nn.Embedding(CONTEXT, dim)
        self.layers = nn.ModuleList(Layer(dim) for _ in range(depth))
        self.head = nn.Linear(dim, VOCABULARY)

    def forward(self, ids):
        x = self.tokens(ids) + self.positions(torch.arange(ids.shape[1]))
        for layer in self.layers:
            x = layer(x)
        return self.head(x)

    def balance_loss(self):
        losses = [layer.experts.balance for layer in self.layers]
        return torch.stack(losses).mean()


def batch(n=16):
    start = torch.randint(0, VOCABULARY, (n, 1))
    stride = torch.randint(1, 4, (n, 1))
    ids = (start + stride * torch.arange(CONTEXT + 1)) % VOCABULARY
    return ids[:, :-1], ids[:, 1:]


def main():
    torch.manual_seed(9)
    model = LanguageModel()
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    for step in range(80):
        inputs, targets = batch()
        scores = model(inputs)
        task = F.cross_entropy(scores.flatten(0, 1), targets.flatten())
        loss = task + 0.02 * model.balance_loss()
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        if step % 20 == 0:
            print(f"{step}: {task.item():.3f}")


if __name__ == "__main__":
    main()
