"""Small causal language model on repeating patterns, AdamW with separate weight-decay groups."""
import torch
import torch.nn as nn
import torch.nn.functional as F


class TinyLM(nn.Module):
    def __init__(self, vocab=20, dim=32, length=16):
        super().__init__()
        self.embed = nn.Embedding(vocab, dim)
        self.pos = nn.Embedding(length, dim)
        self.layer = nn.TransformerEncoderLayer(dim, 4, 64, dropout=0.0, batch_first=True, norm_first=True)
        self.norm = nn.LayerNorm(dim)
        self.head = nn.Linear(dim, vocab, bias=False)

    def forward(self, tokens):
        n = tokens.shape[1]
        mask = torch.triu(torch.ones(n, n, dtype=torch.bool), 1)
        h = self.embed(tokens) + self.pos(torch.arange(n))
        return self.head(self.norm(self.layer(h, src_mask=mask)))


def make_optimizer(model):
    table = ("embed", "pos")
    decay, no_decay = [], []
    for name, p in model.named_parameters():
        if p.ndim >= 2 and not name.startswith(table):
            decay.append(p)
        elif p.ndim < 2 or name.startswith(table):
            no_decay.append(p)
    groups = [{"params": decay, "weight_decay": 0.1}, {"params": no_decay, "weight_decay": 0.0}]
    return torch.optim.AdamW(groups, lr=3e-3)


def main(steps=80):
    torch.set_num_threads(1)
    torch.manual_seed(460)
    model = TinyLM()
    optimizer = make_optimizer(model)
    for step in range(steps):
        pattern = torch.randint(0, 20, (32, 4))
        tokens = pattern.repeat(1, 5)[:, :17]
        logits = model(tokens[:, :-1])
        loss = F.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 20 == 0:
            print(f"step {step} loss {loss.item():.4f}")


if __name__ == "__main__":
    main()
