import torch
import torch.nn.functional as F
from torch import nn


class TextClassifier(nn.Module):
    def __init__(self, vocab=40, width=32, classes=4):
        super().__init__()
        self.embed = nn.EmbeddingBag(vocab, width)
        self.layers = nn.ModuleList([nn.Linear(width, width) for _ in range(3)])
        self.head = nn.Linear(width, classes)

    def forward(self, tokens):
        h = self.embed(tokens)
        for layer in self.layers:
            h = h + F.relu(layer(h))
        return self.head(h)


def unfreeze(module, optimizer, lr):
    module.requires_grad_(True)
    optimizer.add_param_group({"params": module.parameters(), "lr": lr})


def main():
    torch.manual_seed(11)
    model = TextClassifier()
    for part in (model.embed, *model.layers):
        part.requires_grad_(False)
    optimizer = torch.optim.AdamW(model.head.parameters(), lr=5e-3)
    schedule = {20: (model.layers[2], 3e-3), 40: (model.layers[1], 2e-3), 60: (model.layers[0], 1e-3)}
    for step in range(90):
        if step in schedule:
            unfreeze(schedule[step][0], optimizer, schedule[step][1])
        tokens = torch.randint(0, 40, (32, 6))
        labels = (tokens % 4).mode(dim=1).values
        loss = F.cross_entropy(model(tokens), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 30 == 0:
            print(step, loss.item())


if __name__ == "__main__":
    main()
