import itertools

import torch
import torch.nn as nn
import torch.nn.functional as F


def tower(size):
    return nn.Sequential(nn.EmbeddingBag(size, 32), nn.Linear(32, 32), nn.Tanh(), nn.Linear(32, 16))


def contrast(own, other):
    scores = F.normalize(own, dim=-1) @ F.normalize(other, dim=-1).T / 0.1
    return F.cross_entropy(scores, torch.arange(len(own)))


def pairs(generator, count=32):
    topic = torch.randint(0, 40, (count, 1), generator=generator)
    user = topic * 5 + torch.randint(0, 5, (count, 8), generator=generator)
    item = topic * 5 + torch.randint(0, 5, (count, 4), generator=generator)
    return user, item


def main(rounds=60):
    torch.manual_seed(0)
    generator = torch.Generator().manual_seed(3)
    users, items = tower(200), tower(200)
    turns = itertools.cycle(
        [
            (users, items, torch.optim.Adam(users.parameters(), lr=3e-3), False),
            (items, users, torch.optim.Adam(items.parameters(), lr=3e-3), True),
        ]
    )
    for step, (active, passive, optimizer, swapped) in zip(range(rounds), turns):
        user, item = pairs(generator)
        mine, theirs = (item, user) if swapped else (user, item)
        with torch.no_grad():
            fixed = passive(theirs)
        loss = contrast(active(mine), fixed)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 20 < 2:
            print(step, loss.item())


if __name__ == "__main__":
    main()
