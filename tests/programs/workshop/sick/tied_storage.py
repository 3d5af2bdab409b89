import math
import torch
import torch.nn as nn
import torch.nn.functional as F


class PositionalEncoding(nn.Module):
    def __init__(self, d, longest=32):
        super().__init__()
        pos = torch.arange(longest).unsqueeze(1)
        div = torch.exp(torch.arange(0, d, 2) * (-math.log(10000.0) / d))
        pe = torch.zeros(longest, d)
        pe[:, 0::2] = torch.sin(pos * div)
        pe[:, 1::2] = torch.cos(pos * div)
        self.register_buffer("pe", pe)

    def forward(self, x):
        return x + self.pe[: x.size(1)]


class LM(nn.Module):
    def __init__(self, vocab=32, d=32):
        super().__init__()
        self.emb = nn.Embedding(vocab, d)
        nn.init.normal_(self.emb.weight, std=0.1)
        self.pos = PositionalEncoding(d)
        layer = nn.TransformerEncoderLayer(d, 2, 64, dropout=0.0, batch_first=True)
        self.enc = nn.TransformerEncoder(layer, 1, enable_nested_tensor=False)
        self.head = nn.Linear(d, vocab, bias=False)
        self.head.weight.data = self.emb.weight.data

    def forward(self, ids):
        mask = nn.Transformer.generate_square_subsequent_mask(ids.size(1))
        return self.head(self.enc(self.pos(self.emb(ids)), mask=mask, is_causal=True))


torch.manual_seed(0)
model = LM()
opt = torch.optim.Adam(model.parameters(), lr=3e-3)
for i in range(60):
    start = torch.randint(0, 32, (16, 1))
    seq = (start + 5 * torch.arange(13)) % 32
    logits = model(seq[:, :-1])
    loss = F.cross_entropy(logits.reshape(-1, 32), seq[:, 1:].reshape(-1))
    opt.zero_grad()
    loss.backward()
    opt.step()
    if i % 15 == 0:
        print(i, loss.item())
print("parameters", len(list(model.parameters())), model.head.weight.data_ptr() == model.emb.weight.data_ptr())
