import torch
import torch.nn as nn
import torch.nn.functional as F


class WeightAverage:
    def __init__(self, decay=0.98):
        self.decay = decay
        self.shadow = {}

    def register(self, model):
        for name, param in model.named_parameters():
            if param.requires_grad:
                self.shadow[name] = param.data.clone()

    def update(self, model):
        for name, param in model.named_parameters():
            if param.requires_grad:
                self.shadow[name].mul_(self.decay)
                self.shadow[name].add_(param.data, alpha=1 - self.decay)


class TextCNN(nn.Module):
    def __init__(self, vocab=80, dim=16, classes=4):
        super().__init__()
        self.embedding = nn.Embedding(vocab, dim)
        self.convs = nn.ModuleList(nn.Conv1d(dim, 12, k, padding=k // 2) for k in (3, 5))
        self.fc = nn.Linear(24, classes)

    def forward(self, ids):
        x = self.embedding(ids).transpose(1, 2)
        return self.fc(torch.cat([F.relu(c(x)).amax(-1) for c in self.convs], 1))


def documents(n, topics):
    label = torch.randint(0, len(topics), (n,))
    ids = torch.randint(0, 80, (n, 20))
    hits = topics[label].gather(1, torch.randint(0, topics.shape[1], (n, 6)))
    ids[:, 4:10] = hits
    return ids, label


def train():
    torch.manual_seed(70)
    topics = torch.randperm(80).view(4, 20)
    model = TextCNN()
    average = WeightAverage()
    average.register(model)
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    for step in range(160):
        ids, label = documents(32, topics)
        loss = F.cross_entropy(model(ids), label)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        average.update(model)
        if step % 40 == 0:
            print(step, loss.item())


if __name__ == "__main__":
    train()
