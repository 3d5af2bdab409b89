import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Encoder(nn.Module):
    def __init__(self, features, width, depth):
        super().__init__()
        sizes = [features] + [width] * depth
        self.blocks = nn.ModuleList(
            nn.Sequential(nn.Linear(a, b), nn.LayerNorm(b), nn.GELU()) for a, b in zip(sizes, sizes[1:])
        )

    def forward(self, x):
        for block in self.blocks:
            x = block(x)
        return x


class Classifier(nn.Module):
    def __init__(self, encoder, width, classes):
        super().__init__()
        self.encoder = encoder
        self.head = nn.Linear(width, classes)

    def forward(self, x):
        return self.head(self.encoder(x))


def set_trainable(module, flag):
    for p in module.parameters():
        p.requires_grad_(flag)


def pretrain(encoder, x):
    decoder = nn.Linear(48, x.size(1))
    optimizer = torch.optim.Adam([*encoder.parameters(), *decoder.parameters()], lr=1e-3)
    for _ in range(10):
        optimizer.zero_grad()
        loss = F.mse_loss(decoder(encoder(x)), x)
        loss.backward()
        optimizer.step()


def main():
    torch.manual_seed(12)
    x = torch.randn(512, 20)
    y = (x[:, :3].sum(1) > 0).long() + (x[:, 3] > 0.5).long()
    encoder = Encoder(20, 48, 4)
    pretrain(encoder, x)
    model = Classifier(encoder, 48, 3)
    set_trainable(model.encoder, False)
    optimizer = torch.optim.AdamW(filter(lambda p: p.requires_grad, model.parameters()), lr=1e-3)
    loader = DataLoader(TensorDataset(x, y), batch_size=64, shuffle=True)
    for epoch in range(5):
        if 1 <= epoch <= 4:
            block = model.encoder.blocks[-epoch]
            set_trainable(block, True)
            optimizer.add_param_group({"params": block.parameters(), "lr": 1e-3 * 0.5**epoch})
        correct = 0
        for inputs, labels in loader:
            logits = model(inputs)
            loss = F.cross_entropy(logits, labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            correct += (logits.argmax(1) == labels).sum().item()
        print(f"epoch {epoch}: accuracy {correct / len(x):.3f}")


if __name__ == "__main__":
    main()
