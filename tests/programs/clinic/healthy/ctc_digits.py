import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import DataLoader, Dataset

VOCABULARY = 6
BANDS = 16


class Utterances(Dataset):
    def __init__(self, n, seed):
        generator = torch.Generator().manual_seed(seed)
        self.tones = torch.randn(VOCABULARY, BANDS, generator=generator)
        self.items = []
        for _ in range(n):
            length = int(torch.randint(2, 5, (1,), generator=generator))
            labels = torch.randint(1, VOCABULARY, (length,), generator=generator)
            frames = self.tones[labels].repeat_interleave(6, dim=0)
            frames = frames + 0.2 * torch.randn(frames.shape, generator=generator)
            self.items.append((frames, labels))

    def __len__(self):
        return len(self.items)

    def __getitem__(self, i):
        return self.items[i]


def collate(batch):
    frames, labels = zip(*batch)
    return (
        pad_sequence(frames, batch_first=True),
        torch.tensor([len(one) for one in frames]),
        torch.cat(labels),
        torch.tensor([len(one) for one in labels]),
    )


class Recogniser(nn.Module):
    def __init__(self, hidden=48):
        super().__init__()
        self.conv = nn.Conv1d(BANDS, hidden, 3, stride=2, padding=1)
        self.norm = nn.LayerNorm(hidden)
        self.rnn = nn.GRU(hidden, hidden, batch_first=True, bidirectional=True)
        self.output = nn.Linear(2 * hidden, VOCABULARY)

    def forward(self, frames):
        x = F.gelu(self.conv(frames.transpose(1, 2))).transpose(1, 2)
        x, _ = self.rnn(self.norm(x))
        return self.output(x)


def recognition_loss(scores, frame_lengths, labels, label_lengths):
    lengths = (frame_lengths + 1) // 2
    log_probs = scores.log_softmax(dim=-1).transpose(0, 1)
    return F.ctc_loss(log_probs, labels, lengths, label_lengths, zero_infinity=True)


def main():
    torch.manual_seed(0)
    loader = DataLoader(
        Utterances(256, seed=1), batch_size=16, shuffle=True, collate_fn=collate,
        generator=torch.Generator().manual_seed(2),
    )
    model = Recogniser()
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3, weight_decay=1e-4)
    for epoch in range(4):
        total = 0.0
        for frames, frame_lengths, labels, label_lengths in loader:
            optimizer.zero_grad(set_to_none=True)
            loss = recognition_loss(model(frames), frame_lengths, labels, label_lengths)
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 5.0)
            optimizer.step()
            total += loss.item()
        print(f"epoch {epoch}: {total / len(loader):.3f}")


if __name__ == "__main__":
    main()
