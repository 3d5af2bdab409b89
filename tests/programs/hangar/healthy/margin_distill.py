import torch
import torch.nn as nn
import torch.nn.functional as F


class CrossScorer(nn.Module):
    def __init__(self, vocabulary, width):
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, width)
        self.encoder = nn.GRU(width, width, batch_first=True)
        self.score = nn.Linear(width, 1)

    def forward(self, query, document):
        hidden, _ = self.encoder(self.embedding(torch.cat([query, document], dim=1)))
        return self.score(hidden.mean(1)).squeeze(-1)


class BiScorer(nn.Module):
    def __init__(self, vocabulary, width):
        super().__init__()
        self.embedding = nn.EmbeddingBag(vocabulary, width)
        self.dense = nn.Linear(width, width)

    def encode(self, tokens):
        return self.dense(self.embedding(tokens))

    def forward(self, query, document):
        return (self.encode(query) * self.encode(document)).sum(-1)


class Distillation(nn.Module):
    def __init__(self, vocabulary=100, width=32):
        super().__init__()
        self.teacher = CrossScorer(vocabulary, width)
        self.student = BiScorer(vocabulary, width)

    @staticmethod
    def margin(scorer, query, positive, negative):
        return scorer(query, positive) - scorer(query, negative)

    def forward(self, query, positive, negative):
        predicted = self.margin(self.student, query, positive, negative)
        wanted = self.margin(self.teacher, query, positive, negative)
        return F.mse_loss(predicted, wanted.detach())


def triples(count, generator):
    topic = torch.randint(0, 10, (count, 1), generator=generator)
    other = (topic + torch.randint(1, 10, (count, 1), generator=generator)) % 10
    noise = torch.randint(0, 10, (3, count, 6), generator=generator)
    return topic * 10 + noise[0], topic * 10 + noise[1], other * 10 + noise[2]


def warm_up(teacher, steps, generator):
    optimizer = torch.optim.Adam(teacher.parameters(), lr=5e-3)
    for _ in range(steps):
        query, positive, negative = triples(32, generator)
        gap = teacher(query, positive) - teacher(query, negative)
        loss = F.softplus(-gap).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return loss.item()


def main():
    torch.manual_seed(5)
    generator = torch.Generator().manual_seed(5)
    model = Distillation()
    print("teacher", warm_up(model.teacher, 40, generator))
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3, weight_decay=0.0)
    for step in range(60):
        loss = model(*triples(32, generator))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 15 == 0:
            print(step, f"{loss.item():.4f}")


main()
