import torch
import torch.nn as nn
import torch.nn.functional as F


class Encoder(nn.Module):
    def __init__(self, bands=16, width=32):
        super().__init__()
        self.layers = nn.Sequential(nn.Conv1d(bands, width, 5, stride=2), nn.GELU(), nn.Conv1d(width, width, 3, stride=2))

    @torch.inference_mode()
    def features(self, frames):
        return self.layers(frames).transpose(1, 2)


class WeightedHead(nn.Module):
    def __init__(self, width=32, emotions=4):
        super().__init__()
        self.importance = nn.Linear(width, 1)
        self.classify = nn.Linear(width, emotions)

    def forward(self, features):
        weight = self.importance(features).softmax(dim=1)
        return self.classify((weight * features).sum(1))


def clips(count, generator):
    emotion = torch.randint(0, 4, (count,), generator=generator)
    frames = torch.randn(count, 16, 40, generator=generator)
    frames[torch.arange(count), emotion * 4] += 1.5
    return frames, emotion


def main():
    torch.manual_seed(0)
    generator = torch.Generator().manual_seed(0)
    encoder = Encoder().eval().requires_grad_(False)
    head = WeightedHead()
    optimizer = torch.optim.Adam(head.parameters(), lr=1e-2)
    for step in range(50):
        frames, emotion = clips(32, generator)
        features = encoder.features(frames).clone()
        loss = F.cross_entropy(head(features), emotion)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 10 == 0:
            print(step, loss.item())


if __name__ == "__main__":
    main()
