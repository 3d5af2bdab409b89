import torch
from accelerate import Accelerator
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


def get_loader(n=512):
    g = torch.Generator().manual_seed(0)
    x = torch.randn(n, 16, generator=g)
    w = torch.randn(16, 1, generator=g)
    return DataLoader(TensorDataset(x, x @ w + 0.1 * torch.randn(n, 1, generator=g)), batch_size=8, shuffle=True)


def main():
    torch.manual_seed(7)
    grad_accum = 4
    accelerator = Accelerator(cpu=True, gradient_accumulation_steps=grad_accum)
    model = nn.Sequential(nn.Linear(16, 64), nn.ReLU(), nn.Linear(64, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.02, momentum=0.9)
    model, optimizer, loader = accelerator.prepare(model, optimizer, get_loader())
    criterion = nn.MSELoss()
    for epoch in range(3):
        running = 0.0
        for x, y in loader:
            with accelerator.accumulate(model):
                loss = criterion(model(x), y)
                running += loss.item()
                loss = loss / grad_accum
                accelerator.backward(loss)
                optimizer.step()
                optimizer.zero_grad()
        accelerator.print(f"epoch {epoch}: {running / len(loader):.4f}")


if __name__ == "__main__":
    main()
