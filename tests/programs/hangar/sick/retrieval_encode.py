import argparse
import functools

import torch
import torch.nn as nn
import torch.nn.functional as F


def inference(method):
    @functools.wraps(method)
    def wrapped(self, *args, **kwargs):
        with torch.no_grad():
            return method(self, *args, **kwargs)

    return wrapped


class Tower(nn.Module):
    def __init__(self, vocabulary, width, size):
        super().__init__()
        self.embedding = nn.EmbeddingBag(vocabulary, width, mode="mean")
        self.projection = nn.Sequential(nn.Linear(width, width), nn.GELU(), nn.Linear(width, size))

    def forward(self, tokens):
        return self.projection(self.embedding(tokens))

    @inference
    def encode(self, tokens, normalize=True):
        vectors = self(tokens)
        return F.normalize(vectors, dim=-1) if normalize else vectors


class DualEncoder(nn.Module):
    def __init__(self, vocabulary=300, width=48, size=32):
        super().__init__()
        self.queries = Tower(vocabulary, width, size)
        self.documents = Tower(vocabulary, width, size)
        self.log_scale = nn.Parameter(torch.tensor(2.0))

    def similarities(self, query_tokens, document_tokens):
        queries = F.normalize(self.queries(query_tokens), dim=-1)
        documents = self.documents.encode(document_tokens)
        return queries @ documents.T * self.log_scale.exp()


def make_batch(size, generator):
    topics = torch.randint(0, 30, (size, 1), generator=generator)
    query = topics * 10 + torch.randint(0, 5, (size, 6), generator=generator)
    document = topics * 10 + torch.randint(5, 10, (size, 12), generator=generator)
    return query, document


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--batch-size", type=int, default=24)
    parser.add_argument("--lr", type=float, default=2e-3)
    args = parser.parse_args()
    torch.manual_seed(0)
    generator = torch.Generator().manual_seed(1)
    model = DualEncoder()
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr)
    for step in range(args.steps):
        query, document = make_batch(args.batch_size, generator)
        logits = model.similarities(query, document)
        target = torch.arange(len(query))
        loss = (F.cross_entropy(logits, target) + F.cross_entropy(logits.T, target)) / 2
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 20 == 0:
            hits = model.queries.encode(query) @ model.documents.encode(document).T
            print(step, f"{loss.item():.3f}", (hits.argmax(1) == target).float().mean().item())


if __name__ == "__main__":
    main()
