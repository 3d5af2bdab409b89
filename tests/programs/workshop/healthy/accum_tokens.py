import torch
import torch.nn as nn
import torch.nn.functional as F

VOCAB, PAD = 30, 0


class TinyLM(nn.Module):
    def __init__(self, d=48):
        super().__init__()
        self.tok = nn.Embedding(VOCAB, d, padding_idx=PAD)
        self.rnn = nn.GRU(d, d, batch_first=True)
        self.out = nn.Linear(d, VOCAB)

    def forward(self, ids):
        return self.out(self.rnn(self.tok(ids))[0])


def sample_batch(gen, batch=4, longest=24):
    # most conversations are short, some are long
    length = longest if torch.rand(1, generator=gen) < 0.25 else 4
    start = torch.randint(1, VOCAB, (batch, 1), generator=gen)
    ids = (start + torch.arange(length + 1) * (1 if length == 4 else 3)) % (VOCAB - 1) + 1
    return ids[:, :-1], ids[:, 1:]


def train(steps=40, accum=4):
    torch.manual_seed(0)
    gen = torch.Generator().manual_seed(5)
    model = TinyLM()
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    for step in range(steps):
        micro = [sample_batch(gen) for _ in range(accum)]
        total = sum((y != PAD).sum() for _, y in micro)
        optimizer.zero_grad()
        step_loss = 0.0
        for x, y in micro:
            logits = model(x)
            loss = F.cross_entropy(
                logits.flatten(0, 1), y.flatten(), ignore_index=PAD, reduction="sum"
            )
            loss = loss / total
            loss.backward()
            step_loss += loss.item()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        if step % 10 == 9:
            print(f"step {step + 1} loss {step_loss:.3f}")
    return model


train()
