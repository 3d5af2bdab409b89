import torch
import torch.nn.functional as F
from torch import nn
from torch.optim.swa_utils import SWALR, AveragedModel, update_bn
from torch.utils.data import DataLoader, TensorDataset


class Residual(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(width, width, 3, padding=1, bias=False), nn.BatchNorm2d(width), nn.ReLU(),
            nn.Conv2d(width, width, 3, padding=1, bias=False), nn.BatchNorm2d(width),
        )
        nn.init.zeros_(self.body[-1].weight)

    def forward(self, x):
        return F.relu(x + self.body(x))


def network():
    return nn.Sequential(
        nn.Conv2d(1, 12, 3, padding=1), nn.BatchNorm2d(12), nn.ReLU(), Residual(12),
        nn.MaxPool2d(2), Residual(12), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(12, 3),
    )


def shapes(n=384):
    y = torch.randint(0, 3, (n,))
    x = 0.3 * torch.randn(n, 1, 12, 12)
    for i, label in enumerate(y.tolist()):
        if label == 0:
            x[i, 0, 3:9, 5:7] += 1
        elif label == 1:
            x[i, 0, 5:7, 3:9] += 1
        else:
            x[i, 0, 4:8, 4:8] += 1
    return TensorDataset(x, y)


def main():
    torch.manual_seed(6)
    loader = DataLoader(shapes(), batch_size=48, shuffle=True)
    model = network()
    averaged = AveragedModel(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9, weight_decay=5e-4)
    cosine = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=4)
    constant = SWALR(optimizer, anneal_epochs=2, swa_lr=0.02)
    for epoch in range(6):
        model.train()
        for x, y in loader:
            optimizer.zero_grad()
            with torch.autocast("cpu", dtype=torch.bfloat16):
                scores = model(x)
            loss = F.cross_entropy(scores.float(), y)
            loss.backward()
            optimizer.step()
        if epoch >= 4:
            averaged.update_parameters(model)
            constant.step()
        else:
            cosine.step()
        print(f"epoch {epoch}: {loss.item():.3f}")
    update_bn(loader, averaged)
    averaged.eval()
    with torch.no_grad():
        hits = sum((averaged(x).argmax(1) == y).sum().item() for x, y in loader)
    print(hits / 384)


if __name__ == "__main__":
    main()
