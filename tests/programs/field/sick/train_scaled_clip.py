import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Blobs(Dataset):
    def __len__(self):
        return 96

    def __getitem__(self, index):
        g = torch.Generator().manual_seed(index)
        mask = torch.zeros(16, 16)
        r, c = torch.randint(2, 10, (2,), generator=g)
        mask[r : r + 5, c : c + 5] = 1
        return {"image": (mask + 0.3 * torch.randn(16, 16, generator=g)).unsqueeze(0), "mask": mask.long()}


class DoubleConv(nn.Sequential):
    def __init__(self, n_in, n_out):
        super().__init__(nn.Conv2d(n_in, n_out, 3, padding=1), nn.ReLU(), nn.Conv2d(n_out, n_out, 3, padding=1), nn.ReLU())


class UNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.enc = DoubleConv(1, 8)
        self.mid = DoubleConv(8, 16)
        self.dec = DoubleConv(24, 8)
        self.out = nn.Conv2d(8, 2, 1)

    def forward(self, x):
        e = self.enc(x)
        m = F.interpolate(self.mid(F.max_pool2d(e, 2)), scale_factor=2)
        return self.out(self.dec(torch.cat([e, m], 1)))


def train_model(model, epochs=6, batch_size=16, lr=0.05, amp=True, gradient_clipping=1.0):
    loader = DataLoader(Blobs(), shuffle=True, batch_size=batch_size)
    optimizer = torch.optim.SGD(model.parameters(), lr=lr, momentum=0.9)
    grad_scaler = torch.amp.GradScaler("cpu", enabled=amp)
    for epoch in range(1, epochs + 1):
        model.train()
        epoch_loss = 0.0
        for batch in loader:
            with torch.autocast("cpu", torch.bfloat16, enabled=amp):
                loss = F.cross_entropy(model(batch["image"]), batch["mask"])
            optimizer.zero_grad(set_to_none=True)
            grad_scaler.scale(loss).backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), gradient_clipping)
            grad_scaler.step(optimizer)
            grad_scaler.update()
            epoch_loss += loss.item()
        print(epoch, round(epoch_loss / len(loader), 4))


if __name__ == "__main__":
    torch.manual_seed(30)
    train_model(UNet())
