import torch
import torch.nn as nn
import torch.nn.functional as F


class ImageEncoder(nn.Module):
    def __init__(self, out=16):
        super().__init__()
        self.conv = nn.Conv2d(3, 8, 3, padding=1)
        self.bn = nn.BatchNorm2d(8)
        self.fc = nn.Linear(8 * 16, out)

    def forward(self, x):
        x = F.max_pool2d(F.relu(self.bn(self.conv(x))), 2)
        return F.normalize(self.fc(x.flatten(1)), dim=-1)


class TextEncoder(nn.Module):
    def __init__(self, vocab=30, out=16):
        super().__init__()
        self.embed = nn.EmbeddingBag(vocab, 16)
        self.drop = nn.Dropout(0.2)
        self.fc = nn.Linear(16, out)

    def forward(self, tokens):
        return F.normalize(self.fc(self.drop(self.embed(tokens))), dim=-1)


class VSE:
    def __init__(self):
        self.image, self.text = ImageEncoder(), TextEncoder()
        params = list(self.image.parameters()) + list(self.text.parameters())
        self.optimizer = torch.optim.Adam(params, lr=2e-3)
        self.iterations = 0

    def train_start(self):
        self.image.train()
        self.text.train()

    def val_start(self):
        self.image.eval()
        self.text.eval()

    def loss(self, images, captions, margin=0.2):
        scores = self.image(images) @ self.text(captions).T
        diagonal = scores.diag().view(-1, 1)
        cost = (margin + scores - diagonal).clamp(min=0)
        return cost.masked_fill(torch.eye(len(scores), dtype=torch.bool), 0).sum() / len(scores)

    def train_batch(self, images, captions):
        self.iterations += 1
        self.optimizer.zero_grad()
        loss = self.loss(images, captions)
        loss.backward()
        self.optimizer.step()
        return loss.item()


def pairs(n, table):
    label = torch.randint(0, len(table), (n,))
    images = table[label].view(n, 3, 8, 8) + 0.3 * torch.randn(n, 3, 8, 8)
    captions = torch.stack([label, (label * 7 + 3) % 30, torch.randint(0, 30, (n,))], 1)
    return images, captions


def validate(model, table):
    model.val_start()
    with torch.no_grad():
        total = sum(model.loss(*pairs(24, table)).item() for _ in range(2))
    return total / 2


def main():
    torch.manual_seed(17)
    table = torch.randn(20, 192)
    model = VSE()
    model.train_start()
    for step in range(1, 121):
        loss = model.train_batch(*pairs(24, table))
        if step % 40 == 0:
            print(step, round(loss, 3), round(validate(model, table), 3))


main()
