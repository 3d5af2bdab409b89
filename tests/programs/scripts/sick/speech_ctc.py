import torch
import torch.nn as nn

torch.manual_seed(12)
SYMBOLS, MELS = 12, 13


class Recogniser(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv1d(MELS, 32, 5, padding=2)
        self.rnn = nn.GRU(32, 24, num_layers=1, bidirectional=True)
        self.fc = nn.Linear(48, SYMBOLS)

    def forward(self, mels):
        x = torch.relu(self.conv(mels)).permute(2, 0, 1)
        x, _ = self.rnn(x)
        return self.fc(x).log_softmax(1)


def utterances(n, voices):
    frames, texts, lengths = [], [], []
    for _ in range(n):
        size = int(torch.randint(3, 6, (1,)))
        text = torch.randint(1, SYMBOLS, (size,))
        wave = voices[text].repeat_interleave(5, dim=0)
        wave = torch.cat([wave, torch.zeros(30 - len(wave), MELS)])
        frames.append(wave + 0.1 * torch.randn_like(wave))
        texts.append(text)
        lengths.append(size)
    mels = torch.stack(frames).transpose(1, 2)
    return mels, torch.cat(texts), torch.full((n,), 30), torch.tensor(lengths)


def train(steps=70):
    voices = torch.randn(SYMBOLS, MELS)
    model = Recogniser()
    ctc = nn.CTCLoss(blank=0, zero_infinity=True)
    optimizer = torch.optim.AdamW(model.parameters(), lr=4e-3)
    for step in range(steps):
        mels, text, frames, lengths = utterances(12, voices)
        loss = ctc(model(mels), text, frames, lengths)
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 5.0)
        optimizer.step()
        if step % 10 == 0:
            print(step, round(loss.item(), 3))


train()
