"""Encoder-decoder that reverses short strings."""
import torch
import torch.nn as nn
import torch.nn.functional as F

VOCAB, BOS, LENGTH = 12, 0, 6


class Encoder(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.embed = nn.Embedding(VOCAB, d)
        self.rnn = nn.GRU(d, d)

    def forward(self, src):
        return self.rnn(self.embed(src.t()))


class Decoder(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.embed = nn.Embedding(VOCAB, d)
        self.cell = nn.GRUCell(2 * d, d)
        self.query = nn.Linear(d, d, bias=False)
        self.out = nn.Linear(2 * d, VOCAB)

    def forward(self, memory, h, tokens):
        logits = []
        for tok in tokens.t():
            att = torch.einsum("tbd,bd->tb", memory, self.query(h)).softmax(dim=0)
            context = torch.einsum("tb,tbd->bd", att, memory)
            h = self.cell(torch.cat([self.embed(tok), context], dim=1), h)
            logits.append(self.out(torch.cat([h, context], dim=1)))
        return torch.stack(logits)


class Seq2Seq(nn.Module):
    def __init__(self, d=40):
        super().__init__()
        self.encoder, self.decoder = Encoder(d), Decoder(d)

    def forward(self, src, tgt):
        memory, h = self.encoder(src)
        shifted = torch.cat([torch.full_like(tgt[:, :1], BOS), tgt[:, :-1]], dim=1)
        return self.decoder(memory, h[-1], shifted)


def compute_loss(logits, tgt):
    return F.cross_entropy(logits.reshape(-1, VOCAB), tgt.t().reshape(-1))


def main():
    torch.manual_seed(341)
    g = torch.Generator().manual_seed(342)
    model = Seq2Seq()
    opt = torch.optim.Adam(model.parameters(), lr=1e-2)
    p = torch.linspace(2.0, 0.2, VOCAB - 1)
    for step in range(150):
        src = 1 + torch.multinomial(p.expand(48, -1), LENGTH, replacement=True, generator=g)
        tgt = src.flip(1)
        loss = compute_loss(model(src, tgt), tgt)
        opt.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        opt.step()
        if step % 25 == 0:
            print(f"step {step} loss {loss.item():.4f}")


if __name__ == "__main__":
    main()
