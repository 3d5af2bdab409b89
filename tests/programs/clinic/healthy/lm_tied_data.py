import torch
import torch.nn.functional as F
from torch import nn

TEXT = "the cat sat on the mat and the dog sat on the log while the rat ran past the cat. " * 8


class Vocabulary:
    def __init__(self, text):
        self.letters = sorted(set(text))
        self.index = {letter: i for i, letter in enumerate(self.letters)}

    def encode(self, text):
        return torch.tensor([self.index[letter] for letter in text])

    def __len__(self):
        return len(self.letters)


class Block(nn.Module):
    def __init__(self, dim, heads=2):
        super().__init__()
        self.norm1 = nn.LayerNorm(dim)
        self.attention = nn.MultiheadAttention(dim, heads, batch_first=True)
        self.norm2 = nn.LayerNorm(dim)
        self.mlp = nn.Sequential(nn.Linear(dim, 2 * dim), nn.GELU(), nn.Linear(2 * dim, dim))

    def forward(self, x, mask):
        h = self.norm1(x)
        x = x + self.attention(h, h, h, attn_mask=mask, need_weights=False)[0]
        return x + self.mlp(self.norm2(x))


class CharacterModel(nn.Module):
    def __init__(self, letters, dim=32, context=24):
        super().__init__()
        self.embedding = nn.Embedding(letters, dim)
        self.position = nn.Parameter(0.02 * torch.randn(context, dim))
        self.blocks = nn.ModuleList([Block(dim), Block(dim)])
        self.norm = nn.LayerNorm(dim)
        self.head = nn.Linear(dim, letters, bias=False)
        nn.init.normal_(self.embedding.weight, std=0.05)
        self.head.weight = self.embedding.weight

    def forward(self, ids):
        length = ids.shape[1]
        mask = torch.ones(length, length, dtype=torch.bool).triu(1)
        x = self.embedding(ids) + self.position[:length]
        for block in self.blocks:
            x = block(x, mask)
        return self.head(self.norm(x))


def windows(ids, n, context):
    start = torch.randint(0, len(ids) - context - 1, (n,))
    rows = torch.stack([ids[s : s + context + 1] for s in start.tolist()])
    return rows[:, :-1], rows[:, 1:]


def main():
    torch.manual_seed(22)
    vocabulary = Vocabulary(TEXT)
    ids = vocabulary.encode(TEXT)
    model = CharacterModel(len(vocabulary))
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3, weight_decay=0.01)
    for step in range(80):
        inputs, targets = windows(ids, 16, 24)
        loss = F.cross_entropy(model(inputs).flatten(0, 1), targets.flatten())
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        if step % 20 == 0:
            print(f"{step}: {loss.item():.3f}")


if __name__ == "__main__":
    main()
