from contextlib import contextmanager

import torch
import torch.nn as nn
import torch.nn.functional as F


@contextmanager
def evaluating(model):
    was_training = model.training
    model.eval()
    try:
        with torch.no_grad():
            yield model
    finally:
        model.training = was_training


class MoleculeNet(nn.Module):
    def __init__(self, atoms=12, width=32, layers=3):
        super().__init__()
        self.atoms = nn.Embedding(atoms, width)
        self.updates = nn.ModuleList([nn.Linear(width, width) for _ in range(layers)])
        self.norms = nn.ModuleList([nn.BatchNorm1d(width) for _ in range(layers)])
        self.dropout = nn.Dropout(0.2)
        self.readout = nn.Linear(width, 1)

    def forward(self, atoms, bonds):
        hidden = self.atoms(atoms)
        for update, norm in zip(self.updates, self.norms):
            message = update(hidden + bonds @ hidden)
            message = norm(message.flatten(0, 1)).view_as(message)
            hidden = hidden + self.dropout(F.relu(message))
        return self.readout(hidden.sum(1)).squeeze(-1)


def molecules(count, generator):
    atoms = torch.randint(0, 12, (count, 9), generator=generator)
    bonds = (torch.rand(count, 9, 9, generator=generator) < 0.2).float()
    bonds = ((bonds + bonds.transpose(1, 2)) > 0).float()
    weight = atoms.float().mean(1) / 4
    return atoms, bonds, weight + 0.1 * bonds.sum((1, 2)) / 9


def probe(model, data):
    with evaluating(model):
        atoms, bonds, wanted = data
        return F.l1_loss(model(atoms, bonds), wanted).item()


def fit(epochs=5, steps=16):
    torch.manual_seed(6)
    generator = torch.Generator().manual_seed(6)
    held_out = molecules(64, generator)
    model = MoleculeNet()
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    model.train()
    for epoch in range(epochs):
        for _ in range(steps):
            atoms, bonds, wanted = molecules(32, generator)
            optimizer.zero_grad()
            F.smooth_l1_loss(model(atoms, bonds), wanted).backward()
            optimizer.step()
        print(epoch, probe(model, held_out))


if __name__ == "__main__":
    fit()
