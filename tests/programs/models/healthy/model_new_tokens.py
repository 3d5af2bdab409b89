"""Vocabulary extension: a frozen GRU language model gets four new tokens; only their embedding rows are trained."""
import torch
import torch.nn as nn
import torch.nn.functional as F


class ExtendedLM(nn.Module):
    def __init__(self, n_old=30, n_new=4, dim=24):
        super().__init__()
        vocab = n_old + n_new
        self.embed = nn.Embedding(vocab, dim)
        self.gru = nn.GRU(dim, dim, batch_first=True)
        self.out = nn.Linear(dim, vocab)
        self.gru.requires_grad_(False)
        self.out.requires_grad_(False)
        mask = (torch.arange(vocab) >= n_old).float().unsqueeze(1)
        self.embed.weight.register_hook(lambda grad: grad * mask)

    def forward(self, tokens):
        hidden, _ = self.gru(self.embed(tokens[:, :-1]))
        return self.out(hidden)


def build_model():
    torch.manual_seed(591)
    return ExtendedLM()


def build_optimizer(model):
    return torch.optim.SGD([model.embed.weight], lr=0.5)


def build_batch():
    g = torch.Generator().manual_seed(592)
    tokens = torch.randint(0, 34, (16, 12), generator=g)
    return tokens, tokens[:, 1:]


def loss_fn(output, batch):
    return F.cross_entropy(output.flatten(0, 1), batch[1].flatten())
