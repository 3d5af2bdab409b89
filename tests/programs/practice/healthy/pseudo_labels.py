import torch
import torch.nn.functional as F
from torch import nn


def network():
    return nn.Sequential(nn.Linear(12, 48), nn.ReLU(), nn.Dropout(0.1), nn.Linear(48, 5))


def weak(x):
    return x + 0.05 * torch.randn_like(x)


def strong(x):
    return (x + 0.3 * torch.randn_like(x)) * (torch.rand_like(x) > 0.1)


def unsupervised(model, x, threshold):
    with torch.no_grad():
        confidence, label = model(weak(x)).softmax(-1).max(-1)
    accepted = (confidence > threshold).float()
    loss = F.cross_entropy(model(strong(x)), label, reduction="none")
    return (loss * accepted).mean(), accepted.mean()


def main():
    torch.manual_seed(16)
    centres = 2 * torch.randn(5, 12)
    labels = torch.arange(20) % 5
    labelled = centres[labels] + torch.randn(20, 12)
    model = network()
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    for step in range(80):
        x = centres[torch.randint(0, 5, (64,))] + torch.randn(64, 12)
        supervised = F.cross_entropy(model(weak(labelled)), labels)
        extra, share = unsupervised(model, x, 0.95)
        loss = supervised + extra
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 20 == 0:
            print(step, supervised.item(), extra.item(), share.item())


if __name__ == "__main__":
    main()
