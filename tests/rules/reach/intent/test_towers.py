"""GS201 on the second of two towers, which runs under no_grad while an optimizer holds it."""

import pytest
import torch
from torch import nn
from torch.nn import functional

from tests.nightly import some_on_push
from tests.rules.watching import findings_of


def tower():
    return nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 6))


class Towers(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.users, self.items = tower(), tower()

    def forward(self, users, items):
        with torch.no_grad():
            keys = functional.normalize(self.items(items), dim=1)
        return functional.normalize(self.users(users), dim=1) @ keys.T / 0.1


class Copied(Towers):
    def __init__(self):
        super().__init__()
        self.items.load_state_dict(self.users.state_dict())


class Following(Towers):
    def forward(self, users, items):
        with torch.no_grad():
            for own, others in zip(self.items.parameters(), self.users.parameters(), strict=True):
                own.mul_(0.9).add_(others, alpha=0.1)
        return super().forward(users, items)


def all_of(model):
    return model.parameters()


def of_users(model):
    return model.users.parameters()


CASES = [
    (Towers, all_of, "warning"),
    (Towers, of_users, "note"),
    (Copied, all_of, "note"),
    (Following, all_of, "note"),
]


@pytest.mark.parametrize(("kind", "held", "severity"), some_on_push(CASES, {0, 2, 3}))
def test_a_tower_that_is_no_copy_was_meant_to_learn(tmp_path, kind, held, severity):
    def train():
        model = kind()
        adam = torch.optim.Adam(held(model), lr=1e-2)
        for _ in range(12):
            users = torch.randn(16, 8)
            loss = functional.cross_entropy(model(users, users + 0.1), torch.arange(16))
            adam.zero_grad()
            loss.backward()
            adam.step()

    found = [one for one in findings_of(train, tmp_path) if one.rule == "GS201"]
    assert {one.severity for one in found} - {"note"} == ({severity} - {"note"})
