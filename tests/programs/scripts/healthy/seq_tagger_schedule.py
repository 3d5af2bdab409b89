import torch
from torch import nn
from torch.optim.lr_scheduler import LambdaLR


def linear_with_warmup(optimizer, warmup, total):
    def factor(step):
        if step < warmup:
            return step / max(1, warmup)
        return max(0.0, (total - step) / max(1, total - warmup))

    return LambdaLR(optimizer, factor)


class Tagger(nn.Module):
    def __init__(self, vocab=60, tags=5, dim=24):
        super().__init__()
        self.embedding = nn.Embedding(vocab, dim)
        self.lstm = nn.LSTM(dim, dim, bidirectional=True, batch_first=True)
        self.dropout = nn.Dropout(0.1)
        self.out = nn.Linear(2 * dim, tags)

    def forward(self, tokens):
        states, _ = self.lstm(self.embedding(tokens))
        return self.out(self.dropout(states))


class Trainer:
    def __init__(self, model, total_updates, accumulate=4):
        self.model = model
        self.accumulate = accumulate
        self.optimizer = torch.optim.AdamW(model.parameters(), lr=8e-3)
        self.scheduler = linear_with_warmup(self.optimizer, total_updates // 10, total_updates)
        self.loss_fn = nn.CrossEntropyLoss()
        self.log = []

    def micro_batch(self, tokens, tags):
        loss = self.loss_fn(self.model(tokens).transpose(1, 2), tags)
        (loss / self.accumulate).backward()
        self.log.append(loss.item())

    def fit(self, loader):
        self.model.train()
        for i, (tokens, tags) in enumerate(loader, start=1):
            self.micro_batch(tokens, tags)
            if i % self.accumulate == 0:
                nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
                self.optimizer.step()
                self.scheduler.step()
                self.optimizer.zero_grad()


def corpus(count, generator):
    rule = torch.randint(0, 5, (60,), generator=generator)
    for _ in range(count):
        tokens = torch.randint(0, 60, (8, 15), generator=generator)
        yield tokens, rule[tokens]


if __name__ == "__main__":
    torch.manual_seed(11)
    generator = torch.Generator().manual_seed(5)
    trainer = Trainer(Tagger(), total_updates=80)
    trainer.fit(corpus(320, generator))
    print("first", sum(trainer.log[:10]) / 10, "last", sum(trainer.log[-10:]) / 10)
