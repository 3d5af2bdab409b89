"""Fine-tune a pretrained encoder: first the head, then everything."""

import torch
from torch import nn
from torch.nn import functional as F


class Encoder(nn.Module):
    def __init__(self, d_in=12, dim=32):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(d_in, dim), nn.GELU(), nn.Linear(dim, dim), nn.GELU())

    def forward(self, x):
        return self.layers(x)


class FineTuner:
    def __init__(self, encoder, classes, lr=3e-3, unfreeze_at=2):
        self.encoder = encoder
        self.head = nn.Linear(32, classes)
        self.unfreeze_at = unfreeze_at
        for p in self.encoder.parameters():
            p.requires_grad = False
        self.model = nn.Sequential(self.encoder, self.head)
        trainable = [p for p in self.model.parameters() if p.requires_grad]
        self.optimizer = torch.optim.AdamW(trainable, lr=lr)

    def on_epoch_start(self, epoch):
        if epoch == self.unfreeze_at:
            for p in self.encoder.parameters():
                p.requires_grad = True

    def fit(self, x, y, epochs=5):
        for epoch in range(epochs):
            self.on_epoch_start(epoch)
            for index in torch.randperm(len(x)).split(32):
                loss = F.cross_entropy(self.model(x[index]), y[index])
                self.optimizer.zero_grad()
                loss.backward()
                self.optimizer.step()
            print(f"epoch {epoch} loss {loss.item():.4f}")


def pretrain(encoder, x):
    decoder = nn.Linear(32, 12)
    opt = torch.optim.Adam([*encoder.parameters(), *decoder.parameters()], lr=1e-2)
    for _ in range(10):
        opt.zero_grad()
        F.mse_loss(decoder(encoder(x)), x).backward()
        opt.step()


if __name__ == "__main__":
    torch.manual_seed(33)
    x = torch.randn(256, 12)
    y = (x @ torch.randn(12, 4)).argmax(1)
    encoder = Encoder()
    pretrain(encoder, x)
    FineTuner(encoder, 4).fit(x, y)
