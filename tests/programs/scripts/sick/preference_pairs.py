import copy

import torch
import torch.nn as nn
import torch.nn.functional as F


class TinyLM(nn.Module):
    def __init__(self, vocab=32, dim=32):
        super().__init__()
        self.tok = nn.Embedding(vocab, dim)
        self.pos = nn.Embedding(16, dim)
        layer = nn.TransformerEncoderLayer(dim, 4, 64, dropout=0.0, batch_first=True, norm_first=True)
        self.blocks = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.head = nn.Linear(dim, vocab)

    def forward(self, ids):
        n = ids.shape[1]
        mask = torch.triu(torch.full((n, n), float("-inf")), 1)
        return self.head(self.blocks(self.tok(ids) + self.pos(torch.arange(n)), mask=mask))


def sequence_logp(model, ids, prompt):
    logp = model(ids)[:, :-1].log_softmax(-1).gather(2, ids[:, 1:, None]).squeeze(2)
    return logp[:, prompt - 1 :].sum(1)


class DPOTrainer:
    def __init__(self, model, ref_model=None, beta=0.1, lr=1e-3):
        self.model = model
        self.ref_model = ref_model if ref_model is not None else model
        self.beta = beta
        self.optimizer = torch.optim.RMSprop(model.parameters(), lr=lr)

    def margins(self, model, batch):
        return sequence_logp(model, batch["chosen"], 4) - sequence_logp(model, batch["rejected"], 4)

    def loss(self, batch):
        policy = self.margins(self.model, batch)
        reference = self.margins(self.ref_model, batch)
        return -F.logsigmoid(self.beta * (policy - reference)).mean()

    def train(self, batches):
        for i, batch in enumerate(batches):
            loss = self.loss(batch)
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()
            if i % 15 == 0:
                print(i, round(loss.item(), 4))


def preferences(n):
    for _ in range(n):
        prompt = torch.randint(0, 16, (12, 4))
        good = torch.randint(16, 24, (12, 4))
        bad = torch.randint(24, 32, (12, 4))
        yield {"chosen": torch.cat([prompt, good], 1), "rejected": torch.cat([prompt, bad], 1)}


torch.manual_seed(10)
DPOTrainer(TinyLM()).train(preferences(60))
