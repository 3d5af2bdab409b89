"""Line recogniser for strips of digits, trained by connectionist temporal classification."""
import torch
import torch.nn.functional as F
from torch import nn

BLANK, DIGITS = 0, 6


def strip(g, height=8):
    count = int(torch.randint(2, 5, (1,), generator=g))
    digits = torch.randint(1, DIGITS + 1, (count,), generator=g)
    image = 0.2 * torch.randn(height, 48, generator=g)
    for place, digit in enumerate(digits.tolist()):
        left = 12 * place + int(torch.randint(0, 4, (1,), generator=g))
        image[digit : digit + 2, left : left + 6] += 2.0
        image[: digit, left + 2] += 1.0
    return image, digits


def make_batch(n, g):
    images, labels = zip(*(strip(g) for _ in range(n)))
    lengths = torch.tensor([len(y) for y in labels])
    return torch.stack(images).unsqueeze(1), torch.cat(labels), lengths


class CRNN(nn.Module):
    def __init__(self, width=24):
        super().__init__()
        self.conv = nn.Sequential(
            nn.Conv2d(1, width, (8, 5), padding=(0, 2)), nn.BatchNorm2d(width), nn.ReLU(), nn.MaxPool2d((1, 2))
        )
        self.rnn = nn.LSTM(width, width, bidirectional=True)
        self.head = nn.Linear(2 * width, DIGITS + 1)

    def forward(self, x):
        h = self.conv(x).squeeze(2).permute(2, 0, 1)
        h, _ = self.rnn(h)
        return self.head(h).log_softmax(2)


class Recogniser:
    def __init__(self):
        self.net = CRNN()
        self.ctc = nn.CTCLoss(blank=BLANK, zero_infinity=True)
        self.optimizer = torch.optim.Adam(self.net.parameters(), lr=5e-3)

    def step(self, images, labels, lengths):
        scores = self.net(images)
        steps = torch.full((images.size(0),), scores.size(0))
        loss = self.ctc(scores, labels, steps, lengths)
        self.optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(self.net.parameters(), 5.0)
        self.optimizer.step()
        return loss.item()


def main():
    torch.manual_seed(121)
    g = torch.Generator().manual_seed(21)
    recogniser = Recogniser()
    for it in range(30):
        loss = recogniser.step(*make_batch(24, g))
        if it % 6 == 0:
            print(f"iteration {it} loss {loss:.4f}")


if __name__ == "__main__":
    main()
