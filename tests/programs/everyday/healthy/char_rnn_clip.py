import torch
import torch.nn as nn

torch.manual_seed(1234)

text = "the quick brown fox jumps over the lazy dog and runs away from the old bear. " * 30
chars = sorted(set(text))
stoi = {c: i for i, c in enumerate(chars)}
data = torch.tensor([stoi[c] for c in text])
config = {"seq": 24, "batch": 16, "hidden": 64, "lr": 0.01, "max_norm": 0.5, "iters": 100}


def get_batch():
    starts = torch.randint(len(data) - config["seq"] - 1, (config["batch"],))
    x = torch.stack([data[s : s + config["seq"]] for s in starts])
    y = torch.stack([data[s + 1 : s + config["seq"] + 1] for s in starts])
    return x, y


class CharRNN(nn.Module):
    def __init__(self, vocab, hidden):
        super().__init__()
        self.embed = nn.Embedding(vocab, hidden)
        self.rnn = nn.RNN(hidden, hidden, batch_first=True)
        self.decoder = nn.Linear(hidden, vocab)

    def forward(self, x, state=None):
        out, state = self.rnn(self.embed(x), state)
        return self.decoder(out), state


model = CharRNN(len(chars), config["hidden"])
criterion = nn.CrossEntropyLoss()
optimizer = torch.optim.RMSprop(model.parameters(), lr=config["lr"] / 4)

for i in range(config["iters"]):
    x, y = get_batch()
    logits, _ = model(x)
    loss = criterion(logits.transpose(1, 2), y)
    optimizer.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), config["max_norm"])
    optimizer.step()
    if i % 20 == 0:
        print(f"iter {i}: {loss.item():.3f}")
