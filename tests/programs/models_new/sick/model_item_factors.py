import torch
import torch.nn as nn


class Recommender(nn.Module):
    def __init__(self, users=30, items=50, d=12):
        super().__init__()
        self.users = nn.Embedding(users, d)
        self.items = nn.Embedding(items, d, max_norm=1.0)
        self.mix = nn.Linear(d, d)

    def forward(self, user, item):
        popular = torch.tanh(self.mix(self.items.weight)).mean(0)
        scores = (self.users(user) * self.items(item)).sum(-1)
        return scores + (popular * self.users(user)).sum(-1)


def build_model():
    torch.manual_seed(371)
    return Recommender()


def build_batch():
    g = torch.Generator().manual_seed(372)
    user = torch.randint(0, 30, (100,), generator=g)
    item = torch.randint(0, 50, (100,), generator=g)
    return user, item, ((user + item) % 3 == 0).float()


def loss_fn(output, batch):
    return nn.functional.binary_cross_entropy_with_logits(output, batch[2])
