import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


def pretrained_backbone():
    torch.manual_seed(9)
    return nn.Sequential(nn.Linear(20, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 32), nn.ReLU())


class FineTuner:
    def __init__(self, backbone, classes, lr=5e-3):
        self.backbone = backbone
        self.head = nn.Linear(32, classes)
        self.backbone.requires_grad_(False)
        self.model = nn.Sequential(self.backbone, self.head)
        self.optimizer = torch.optim.Adam(filter(lambda p: p.requires_grad, self.model.parameters()), lr=lr)

    def unfreeze(self, layers):
        linears = [m for m in self.backbone if isinstance(m, nn.Linear)]
        for module in linears[-layers:]:
            if not module.weight.requires_grad:
                module.requires_grad_(True)
                self.optimizer.add_param_group({"params": module.parameters()})

    def epoch(self, loader):
        total, right = 0.0, 0
        for x, y in loader:
            logits = self.model(x)
            loss = nn.functional.cross_entropy(logits, y)
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()
            total += loss.item()
            right += (logits.argmax(1) == y).sum().item()
        return total / len(loader), right / len(loader.dataset)


def main():
    tuner = FineTuner(pretrained_backbone(), 4)
    torch.manual_seed(10)
    x = torch.randn(320, 20)
    y = (x[:, 0] > 0).long() * 2 + (x[:, 1] * x[:, 2] > 0).long()
    loader = DataLoader(TensorDataset(x, y), batch_size=32, shuffle=True)
    for epoch in range(9):
        if epoch == 3:
            tuner.unfreeze(1)
        if epoch == 6:
            tuner.unfreeze(3)
        loss, accuracy = tuner.epoch(loader)
        print(epoch, round(loss, 4), round(accuracy, 3))


if __name__ == "__main__":
    main()
