import torch
from torch import nn


class CharRNN(nn.Module):
    def __init__(self, vocab=24, dim=32):
        super().__init__()
        self.embed = nn.Embedding(vocab, dim)
        self.rnn = nn.RNN(dim, dim, num_layers=2, batch_first=True)
        self.out = nn.Linear(dim, vocab)

    def forward(self, ids, state=None):
        h, state = self.rnn(self.embed(ids), state)
        return self.out(h), state


def setup(lr, weight_decay, max_norm):
    model = CharRNN()
    params = model.parameters()
    optimizer = torch.optim.RMSprop(params, lr=lr, weight_decay=weight_decay)

    def clip():
        nn.utils.clip_grad_norm_(params, max_norm)

    return model, optimizer, clip


def main():
    torch.manual_seed(12)
    model, optimizer, clip = setup(lr=2e-3, weight_decay=0.0, max_norm=0.25)
    text = torch.arange(2400) * 7 % 24
    state = None
    for step in range(100):
        at = (step * 20) % 2000
        chunk = torch.stack([text[at + i : at + i + 21] for i in range(8)])
        logits, state = model(chunk[:, :-1], state)
        state = state.detach()
        loss = nn.functional.cross_entropy(logits.flatten(0, 1), chunk[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        clip()
        optimizer.step()
        if step % 20 == 0:
            print(step, round(loss.item(), 4))


main()
