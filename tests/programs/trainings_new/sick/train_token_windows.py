import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(5)
VOCAB, PAD, WINDOW = 30, -100, 4


def sample_batch(size, longest):
    lengths = torch.randint(2, longest + 1, (size,))
    start = torch.randint(0, VOCAB, (size, 1))
    tokens = (start + 7 * torch.arange(longest + 1)) % VOCAB
    target = tokens[:, 1:].clone()
    target[torch.arange(longest) >= lengths[:, None]] = PAD
    return tokens[:, :-1], target


model = nn.Sequential(nn.Embedding(VOCAB, 32), nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, VOCAB))
optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
for update in range(30):
    window = [sample_batch(6, longest) for longest in (4, 24, 8, 16)]
    count = sum((t != PAD).sum() for _, t in window)
    optimizer.zero_grad()
    seen = 0.0
    for tokens, target in window:
        logits = model(tokens).view(-1, VOCAB)
        loss = F.cross_entropy(logits, target.view(-1), ignore_index=PAD) / WINDOW
        loss.backward()
        seen += loss.item()
    optimizer.step()
    if update % 5 == 4:
        print(update, round(seen, 4))
