import torch
import torch.nn as nn
import torch.nn.functional as F


class Expert(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.w1, self.w2 = nn.Linear(d, 2 * d), nn.Linear(2 * d, d)

    def forward(self, x):
        return self.w2(F.gelu(self.w1(x)))


class MoE(nn.Module):
    def __init__(self, d, experts=4, k=1):
        super().__init__()
        self.k = k
        self.w_gate = nn.Parameter(torch.randn(d, experts) * 0.1)
        self.experts = nn.ModuleList([Expert(d) for _ in range(experts)])

    def forward(self, x):
        logits = x @ self.w_gate
        top, index = logits.topk(self.k, dim=-1)
        gates = F.softmax(top, dim=-1)
        out = torch.zeros_like(x)
        for e, expert in enumerate(self.experts):
            rows, slot = (index == e).nonzero(as_tuple=True)
            if len(rows):
                out = out.index_add(0, rows, gates[rows, slot].unsqueeze(1) * expert(x[rows]))
        return out


class Model(nn.Module):
    def __init__(self, vocab=40, d=24, context=4):
        super().__init__()
        self.emb = nn.Embedding(vocab, d)
        self.mix = nn.Linear(context * d, d)
        self.norms = nn.ModuleList([nn.LayerNorm(d) for _ in range(2)])
        self.moes = nn.ModuleList([MoE(d) for _ in range(2)])
        self.head = nn.Linear(d, vocab)

    def forward(self, context):
        x = self.mix(self.emb(context).flatten(1))
        for norm, moe in zip(self.norms, self.moes):
            x = x + moe(norm(x))
        return self.head(x)


torch.manual_seed(9)
transition = torch.randperm(40)
model = Model()
opt = torch.optim.Adam(model.parameters(), lr=4e-3)
for it in range(100):
    start = torch.randint(0, 40, (96, 1))
    seq = [start]
    for _ in range(4):
        seq.append(transition[seq[-1]])
    seq = torch.cat(seq, 1)
    loss = F.cross_entropy(model(seq[:, :4]), seq[:, 4])
    opt.zero_grad(set_to_none=True)
    loss.backward()
    opt.step()
    if it % 25 == 0:
        print(it, loss.item())
