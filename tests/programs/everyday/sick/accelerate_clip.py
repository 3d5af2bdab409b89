import torch
import torch.nn as nn
from accelerate import Accelerator
from accelerate.utils import set_seed
from torch.utils.data import DataLoader, TensorDataset


class Sequence(nn.Module):
    def __init__(self, vocab=30, dim=48, classes=3):
        super().__init__()
        self.embed = nn.Embedding(vocab, dim)
        self.rnn = nn.GRU(dim, dim, batch_first=True)
        self.head = nn.Linear(dim, classes)

    def forward(self, ids):
        _, state = self.rnn(self.embed(ids))
        return self.head(state[-1])


def dataset(n=512, length=15):
    ids = torch.randint(30, (n, length))
    return TensorDataset(ids, (ids[:, -3:].sum(1) // 30).clamp(max=2))


def main():
    set_seed(18)
    accelerator = Accelerator(cpu=True)
    model = Sequence()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    loader = DataLoader(dataset(), batch_size=32, shuffle=True)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 30, 0.5)
    model, optimizer, loader, scheduler = accelerator.prepare(model, optimizer, loader, scheduler)
    criterion = nn.CrossEntropyLoss()
    for epoch in range(4):
        for ids, label in loader:
            optimizer.zero_grad()
            loss = criterion(model(ids), label)
            accelerator.clip_grad_norm_(model.parameters(), 0.25)
            accelerator.backward(loss)
            optimizer.step()
            scheduler.step()
        accelerator.print(f"epoch {epoch}: loss {loss.item():.4f}")


if __name__ == "__main__":
    main()
