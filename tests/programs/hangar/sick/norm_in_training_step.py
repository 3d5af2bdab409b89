from abc import ABC, abstractmethod

import torch
import torch.nn as nn
import torch.nn.functional as F


class Task(nn.Module, ABC):
    max_norm = None

    @abstractmethod
    def training_step(self, batch):
        ...

    def optimizer(self):
        return torch.optim.AdamW(self.parameters(), lr=2e-3)

    def clip(self):
        if self.max_norm:
            return nn.utils.clip_grad_norm_(self.parameters(), self.max_norm)
        return None

    def before_step(self):
        pass


class DialogueModel(Task):
    max_norm = 0.5

    def __init__(self, vocabulary=80, width=40):
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, width)
        self.position = nn.Parameter(torch.randn(24, width) * 0.02)
        layer = nn.TransformerEncoderLayer(width, 4, 80, dropout=0.0, batch_first=True)
        self.blocks = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.head = nn.Linear(width, vocabulary)

    def forward(self, tokens):
        size = tokens.size(1)
        mask = nn.Transformer.generate_square_subsequent_mask(size)
        return self.head(self.blocks(self.embedding(tokens) + self.position[:size], mask=mask, is_causal=True))

    def training_step(self, batch):
        logits = self(batch[:, :-1])
        loss = F.cross_entropy(logits.flatten(0, 1), batch[:, 1:].flatten())
        self.clip()
        return loss


class Runner:
    def __init__(self, steps):
        self.steps = steps

    def fit(self, task, batches):
        optimizer = task.optimizer()
        task.train()
        for step, batch in zip(range(self.steps), batches):
            loss = task.training_step(batch)
            optimizer.zero_grad()
            loss.backward()
            task.before_step()
            optimizer.step()
            if step % 10 == 0:
                print(f"{step}: {float(loss):.3f}")


def talk(seed):
    generator = torch.Generator().manual_seed(seed)
    while True:
        start = torch.randint(0, 80, (12, 1), generator=generator)
        pace = torch.randint(1, 4, (12, 1), generator=generator)
        yield (start + pace * torch.arange(20)) % 80


torch.manual_seed(0)
Runner(40).fit(DialogueModel(), talk(5))
