"""Masked mean pooling over product reviews per user; some users have no review yet."""
import torch
import torch.nn as nn
import torch.nn.functional as F


class UserModel(nn.Module):
    def __init__(self, n_in=10, dim=20):
        super().__init__()
        self.review = nn.Sequential(nn.Linear(n_in, dim), nn.ReLU())
        self.profile = nn.Linear(4, dim)
        self.out = nn.Linear(dim, 1)

    def forward(self, reviews, mask, profile, target=None):
        h = self.review(reviews) * mask.unsqueeze(-1)
        count = mask.sum(dim=1, keepdim=True).clamp(min=1)
        pooled = h.sum(dim=1) / count
        return self.out(torch.relu(pooled + self.profile(profile))).squeeze(-1)


def build_model():
    torch.manual_seed(531)
    return UserModel()


def build_batch():
    g = torch.Generator().manual_seed(532)
    counts = torch.tensor([5, 3, 0, 7, 1, 2, 6, 0, 4, 7, 2, 3])
    mask = (torch.arange(7)[None] < counts[:, None]).float()
    reviews = torch.randn(12, 7, 10, generator=g)
    return {"reviews": reviews, "mask": mask, "profile": torch.randn(12, 4, generator=g),
            "target": (reviews[..., 0] * mask).sum(1) * 0.3}


def loss_fn(output, batch):
    return F.mse_loss(output, batch["target"])
