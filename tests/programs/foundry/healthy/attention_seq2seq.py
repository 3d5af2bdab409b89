"""Attention decoder in the style of the classic translation tutorial."""
import random

import torch
import torch.nn.functional as F
from torch import nn, optim

MAX_LENGTH, SOS = 8, 0


class EncoderRNN(nn.Module):
    def __init__(self, input_size, hidden_size):
        super().__init__()
        self.hidden_size = hidden_size
        self.embedding = nn.Embedding(input_size, hidden_size)
        self.gru = nn.GRU(hidden_size, hidden_size)

    def forward(self, token, hidden):
        embedded = self.embedding(token).unsqueeze(0)
        return self.gru(embedded, hidden)


class AttnDecoderRNN(nn.Module):
    def __init__(self, hidden_size, output_size):
        super().__init__()
        self.embedding = nn.Embedding(output_size, hidden_size)
        self.attn = nn.Linear(2 * hidden_size, MAX_LENGTH)
        self.attn_combine = nn.Linear(2 * hidden_size, hidden_size)
        self.gru = nn.GRU(hidden_size, hidden_size)
        self.out = nn.Linear(hidden_size, output_size)

    def forward(self, token, hidden, memory):
        embedded = self.embedding(token)
        weights = F.softmax(self.attn(torch.cat([embedded, hidden[0]], 1)), dim=1)
        context = torch.bmm(weights.unsqueeze(1), memory.transpose(0, 1)).squeeze(1)
        x = F.relu(self.attn_combine(torch.cat([embedded, context], 1)))
        output, hidden = self.gru(x.unsqueeze(0), hidden)
        return self.out(output[0]), hidden


def train_batch(src, tgt, encoder, decoder, encoder_optimizer, decoder_optimizer, criterion, forcing=0.5):
    encoder_optimizer.zero_grad()
    decoder_optimizer.zero_grad()
    batch = src.size(1)
    hidden = torch.zeros(1, batch, encoder.hidden_size)
    memory = torch.zeros(MAX_LENGTH, batch, encoder.hidden_size)
    for i in range(src.size(0)):
        output, hidden = encoder(src[i], hidden)
        memory[i] = output[0]
    loss = 0
    token = torch.full((batch,), SOS)
    teacher = random.random() < forcing
    for i in range(tgt.size(0)):
        logits, hidden = decoder(token, hidden, memory)
        loss = loss + criterion(logits, tgt[i])
        token = tgt[i] if teacher else logits.argmax(1).detach()
    loss.backward()
    encoder_optimizer.step()
    decoder_optimizer.step()
    return loss.item() / tgt.size(0)


def main():
    random.seed(8)
    torch.manual_seed(108)
    encoder, decoder = EncoderRNN(12, 24), AttnDecoderRNN(24, 12)
    encoder_optimizer = optim.Adam(encoder.parameters(), lr=3e-3)
    decoder_optimizer = optim.Adam(decoder.parameters(), lr=3e-3)
    criterion = nn.CrossEntropyLoss()
    for it in range(20):
        src = torch.randint(1, 12, (MAX_LENGTH, 32))
        tgt = src.flip(0)
        loss = train_batch(src, tgt, encoder, decoder, encoder_optimizer, decoder_optimizer, criterion)
        if it % 5 == 0:
            print(f"{it} {loss:.4f}")


if __name__ == "__main__":
    main()
