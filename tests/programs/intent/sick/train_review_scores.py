"""Scores short reviews by word vectors that continue to be tuned."""

import torch
import torch.nn.functional as F
from torch import nn


class Reviews(nn.Module):
    def __init__(self, vectors):
        super().__init__()
        self.words = nn.Embedding.from_pretrained(vectors)
        self.hidden = nn.Linear(vectors.shape[1], 32)
        self.score = nn.Linear(32, 1)

    def forward(self, tokens):
        return self.score(torch.relu(self.hidden(self.words(tokens).mean(1)))).squeeze(1)


def main():
    torch.manual_seed(21)
    vectors = torch.randn(200, 16)
    model = Reviews(vectors)
    rest = [p for name, p in model.named_parameters() if not name.startswith("words")]
    optimizer = torch.optim.Adam(
        [
            {"params": model.words.parameters(), "lr": 1e-4},
            {"params": rest, "lr": 2e-3},
        ]
    )
    worth = torch.randn(200)
    for step in range(30):
        tokens = torch.randint(0, 200, (32, 9))
        wanted = (worth[tokens].mean(1) > 0).float()
        loss = F.binary_cross_entropy_with_logits(model(tokens), wanted)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 10 == 0:
            print(step, f"{loss.item():.4f}")


main()
