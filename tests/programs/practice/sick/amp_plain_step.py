import torch
import torch.nn.functional as F
from torch import nn
from torch.amp import GradScaler, autocast


class TextCNN(nn.Module):
    def __init__(self, vocab=50, width=24, classes=3):
        super().__init__()
        self.embedding = nn.Embedding(vocab, width)
        self.convs = nn.ModuleList(nn.Conv1d(width, 16, k, padding=k // 2) for k in (3, 5))
        self.fc = nn.Linear(32, classes)

    def forward(self, tokens):
        x = self.embedding(tokens).transpose(1, 2)
        pooled = [F.relu(conv(x)).amax(-1) for conv in self.convs]
        return self.fc(torch.cat(pooled, 1))


class AmpTrainer:
    def __init__(self, model, lr=2e-3):
        self.model = model
        self.optimizer = torch.optim.AdamW(model.parameters(), lr=lr)
        self.scaler = GradScaler("cpu")

    def train_step(self, tokens, labels):
        self.optimizer.zero_grad()
        with autocast("cpu", dtype=torch.bfloat16):
            loss = F.cross_entropy(self.model(tokens), labels)
        self.scaler.scale(loss).backward()
        self.optimizer.step()
        return loss.item()


def batch(n=32):
    tokens = torch.randint(3, 50, (n, 12))
    labels = torch.randint(0, 3, (n,))
    tokens[torch.arange(n), torch.randint(0, 12, (n,))] = labels
    return tokens, labels


if __name__ == "__main__":
    torch.manual_seed(44)
    trainer = AmpTrainer(TextCNN())
    for step in range(60):
        loss = trainer.train_step(*batch())
        if step % 20 == 0:
            print(step, loss)
