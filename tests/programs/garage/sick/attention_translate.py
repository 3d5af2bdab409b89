import random

import torch
import torch.nn as nn
import torch.nn.functional as F

PAD, SOS, EOS = 0, 1, 2
VOCAB = 13


class Encoder(nn.Module):
    def __init__(self, vocab, hidden):
        super().__init__()
        self.embedding = nn.Embedding(vocab, hidden, padding_idx=PAD)
        self.gru = nn.GRU(hidden, hidden, batch_first=True)

    def forward(self, tokens):
        return self.gru(self.embedding(tokens))


class Attention(nn.Module):
    def __init__(self, hidden):
        super().__init__()
        self.query = nn.Linear(hidden, hidden, bias=False)
        self.key = nn.Linear(hidden, hidden, bias=False)
        self.energy = nn.Linear(hidden, 1, bias=False)

    def forward(self, state, memory):
        scores = self.energy(torch.tanh(self.query(state)[:, None] + self.key(memory))).squeeze(-1)
        weights = scores.softmax(dim=-1)
        return torch.bmm(weights[:, None], memory)


class Decoder(nn.Module):
    def __init__(self, vocab, hidden):
        super().__init__()
        self.embedding = nn.Embedding(vocab, hidden, padding_idx=PAD)
        self.attention = Attention(hidden)
        self.gru = nn.GRU(2 * hidden, hidden, batch_first=True)
        self.out = nn.Linear(hidden, vocab)

    def forward(self, memory, state, targets, forcing=0.7):
        token = torch.full((memory.size(0), 1), SOS)
        outputs = []
        for t in range(targets.size(1)):
            context = self.attention(state[-1], memory)
            step = torch.cat([self.embedding(token), context], dim=-1)
            output, state = self.gru(step, state)
            logits = self.out(output.squeeze(1))
            outputs.append(logits)
            forced = random.random() < forcing
            token = targets[:, t : t + 1] if forced else logits.argmax(-1, keepdim=True)
        return torch.stack(outputs, dim=1)


def make_batch(size, length=6):
    digits = torch.randint(3, VOCAB, (size, length))
    end = torch.full((size, 1), EOS)
    return torch.cat([digits, end], 1), torch.cat([digits.flip(1), end], 1)


def train_step(encoder, decoder, optimizers, source, target):
    for optimizer in optimizers:
        optimizer.zero_grad()
    memory, state = encoder(source)
    logits = decoder(memory, state.data, target)
    loss = F.cross_entropy(logits.flatten(0, 1), target.flatten(), ignore_index=PAD)
    loss.backward()
    for model in (encoder, decoder):
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    for optimizer in optimizers:
        optimizer.step()
    return loss.item()


def main():
    random.seed(5)
    torch.manual_seed(5)
    encoder, decoder = Encoder(VOCAB, 32), Decoder(VOCAB, 32)
    optimizers = [torch.optim.Adam(m.parameters(), lr=3e-3) for m in (encoder, decoder)]
    for step in range(40):
        loss = train_step(encoder, decoder, optimizers, *make_batch(24))
        if step % 10 == 9:
            print(f"{step + 1:3d} {loss:.3f}")


if __name__ == "__main__":
    main()
