"""Mixed precision training with gradient clipping."""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


def make_model():
    return nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(),
        nn.Conv2d(16, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(),
        nn.Conv2d(16, 1, 1),
    )


def make_data(n=192, size=16):
    clean = torch.zeros(n, 1, size, size)
    for i in range(n):
        a, b = torch.randint(2, size - 4, (2,)).tolist()
        clean[i, 0, a : a + 4, b : b + 4] = 1
    return TensorDataset(clean + 0.5 * torch.randn_like(clean), clean)


def train_epoch(model, loader, optimizer, scaler, criterion, gradient_clipping=1.0):
    model.train()
    epoch_loss = 0
    for images, true_masks in loader:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            masks_pred = model(images)
            loss = criterion(masks_pred, true_masks)
        optimizer.zero_grad(set_to_none=True)
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        torch.nn.utils.clip_grad_norm_(model.parameters(), gradient_clipping)
        scaler.step(optimizer)
        scaler.update()
        epoch_loss += loss.item()
    return epoch_loss / len(loader)


if __name__ == "__main__":
    torch.manual_seed(12)
    model = make_model()
    loader = DataLoader(make_data(), batch_size=16, shuffle=True)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**14)
    criterion = nn.BCEWithLogitsLoss()
    for epoch in range(4):
        print(epoch, train_epoch(model, loader, optimizer, scaler, criterion))
