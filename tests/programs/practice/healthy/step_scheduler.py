import torch
from torch import nn
from torch.optim.lr_scheduler import StepLR
from torch.utils.data import DataLoader, TensorDataset

EPOCHS, BATCH = 8, 16


def build():
    return nn.Sequential(
        nn.Conv2d(1, 8, 3, stride=2, padding=1), nn.ReLU(),
        nn.Conv2d(8, 16, 3, stride=2, padding=1), nn.ReLU(),
        nn.Flatten(), nn.Linear(16 * 9, 32), nn.ReLU(), nn.Linear(32, 2),
    )


def blobs(n, size=12):
    centre = torch.rand(n, 2)
    axis = torch.linspace(0, 1, size)
    dy = (axis.view(1, -1, 1) - centre[:, 0].view(-1, 1, 1)) ** 2
    dx = (axis.view(1, 1, -1) - centre[:, 1].view(-1, 1, 1)) ** 2
    return TensorDataset(torch.exp(-(dx + dy) / 0.02).unsqueeze(1), centre)


def run_epoch(model, loader, optimizer, scheduler, criterion):
    total = 0.0
    for images, centre in loader:
        optimizer.zero_grad()
        loss = criterion(model(images), centre)
        loss.backward()
        optimizer.step()
        total += loss.item()
    scheduler.step()
    return total / len(loader)


def main():
    torch.manual_seed(60)
    model = build()
    loader = DataLoader(blobs(240), batch_size=BATCH, shuffle=True)
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    scheduler = StepLR(optimizer, step_size=3, gamma=0.1)
    for epoch in range(EPOCHS):
        loss = run_epoch(model, loader, optimizer, scheduler, nn.MSELoss())
        print(epoch, f"{loss:.5f}", scheduler.get_last_lr())


if __name__ == "__main__":
    main()
