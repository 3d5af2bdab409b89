import torch
import torch.nn as nn
import torch.nn.functional as F


class LanguageModel(nn.Module):
    def __init__(self, vocab, dim=24):
        super().__init__()
        self.wte = nn.Embedding(vocab, dim)
        self.rnn = nn.LSTM(dim, dim, batch_first=True)
        self.ln = nn.LayerNorm(dim)
        self.lm_head = nn.Linear(dim, vocab, bias=False)

    def resize_token_embeddings(self, size):
        old_in, old_out = self.wte, self.lm_head
        self.wte = nn.Embedding(size, old_in.embedding_dim)
        self.lm_head = nn.Linear(old_out.in_features, size, bias=False)
        with torch.no_grad():
            n = old_in.num_embeddings
            self.wte.weight[:n] = old_in.weight
            self.wte.weight[n:] = old_in.weight.mean(0)
            self.lm_head.weight[:n] = old_out.weight
            self.lm_head.weight[n:] = old_out.weight.mean(0)

    def forward(self, ids):
        h, _ = self.rnn(self.wte(ids))
        return self.lm_head(self.ln(h))


def build_optimizer(model, lr=5e-3):
    no_decay = [p for n, p in model.named_parameters() if n.endswith("bias") or "ln" in n]
    taken = {id(p) for p in no_decay}
    decay = [p for p in model.parameters() if id(p) not in taken]
    return torch.optim.AdamW([{"params": decay, "weight_decay": 0.01}, {"params": no_decay, "weight_decay": 0.0}], lr=lr)


def sequences(vocab, n=80):
    for _ in range(n):
        start = torch.randint(0, vocab, (16, 1))
        yield (start + torch.arange(9) * 3) % vocab


def main():
    torch.manual_seed(13)
    model = LanguageModel(40)
    model.resize_token_embeddings(44)
    optimizer = build_optimizer(model)
    model.train()
    for i, ids in enumerate(sequences(44)):
        logits = model(ids[:, :-1])
        loss = F.cross_entropy(logits.flatten(0, 1), ids[:, 1:].flatten())
        model.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        if i % 20 == 0:
            print(i, loss.item())


if __name__ == "__main__":
    main()
