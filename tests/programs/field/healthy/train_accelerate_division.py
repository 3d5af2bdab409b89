import torch
from accelerate import Accelerator
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

ACCUMULATION = 4


class Regressor(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(8, 48), nn.ReLU(), nn.Linear(48, 1))

    def forward(self, x):
        return self.net(x).squeeze(-1)


def main():
    torch.manual_seed(14)
    accelerator = Accelerator(cpu=True, gradient_accumulation_steps=ACCUMULATION)
    x = torch.randn(384, 8)
    y = x[:, 0] * 2 - x[:, 1] + (x[:, 2] > 0).float()
    loader = DataLoader(TensorDataset(x, y), batch_size=8, shuffle=True)
    model = Regressor()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    for epoch in range(5):
        total = 0.0
        for inputs, targets in loader:
            with accelerator.accumulate(model):
                loss = nn.functional.mse_loss(model(inputs), targets)
                accelerator.backward(loss)
                optimizer.step()
                optimizer.zero_grad()
                total += loss.item()
        print(epoch, round(total / len(loader), 4))


if __name__ == "__main__":
    main()
