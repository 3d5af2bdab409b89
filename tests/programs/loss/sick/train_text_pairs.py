"""Two encoders of titles and texts, trained on pairs."""

import torch
import torch.nn.functional as F
from torch import nn


def encoder(size):
    return nn.Sequential(nn.Linear(size, 48), nn.GELU(), nn.Linear(48, 16))


def info_nce(left, right, temperature=0.1):
    left, right = F.normalize(left, dim=1), F.normalize(right, dim=1)
    powers = torch.exp(left @ right.t() / temperature)
    return -(powers.diagonal() / powers.sum(dim=1)).mean()


torch.manual_seed(9)
topics = torch.randn(300, 8)
titles = topics @ torch.randn(8, 20) + 0.3 * torch.randn(300, 20)
texts = topics @ torch.randn(8, 30) + 0.3 * torch.randn(300, 30)
of_titles, of_texts = encoder(20), encoder(30)
optimizer = torch.optim.AdamW([*of_titles.parameters(), *of_texts.parameters()], lr=2e-3)
for step in range(60):
    rows = torch.randperm(300)[:64]
    loss = info_nce(of_titles(titles[rows]), of_texts(texts[rows]))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
