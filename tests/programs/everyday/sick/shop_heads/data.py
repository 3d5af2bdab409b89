import torch
from torch.utils.data import DataLoader, Dataset


class Visits(Dataset):
    def __init__(self, n, tasks, features=20):
        self.x = torch.randn(n, features)
        self.y = {
            name: (self.x @ torch.randn(features, classes)).argmax(1)
            for name, classes in tasks.items()
        }

    def __len__(self):
        return len(self.x)

    def __getitem__(self, i):
        return self.x[i], {name: y[i] for name, y in self.y.items()}


def visits(n, tasks, batch_size):
    return DataLoader(Visits(n, tasks), batch_size=batch_size, shuffle=True)
