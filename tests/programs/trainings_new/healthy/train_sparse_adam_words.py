import torch
from torch import nn
import torch.nn.functional as F

torch.manual_seed(78)
centre = nn.Embedding(300, 16, sparse=True)
context = nn.Embedding(300, 16, sparse=True)
nn.init.normal_(centre.weight, std=0.1)
nn.init.zeros_(context.weight)
optimizer = torch.optim.SparseAdam([*centre.parameters(), *context.parameters()], lr=0.05)
for step in range(150):
    word = torch.randint(0, 300, (128,))
    near = (word + torch.randint(1, 4, (128,))) % 300
    noise = torch.randint(0, 300, (128, 5))
    c = centre(word)
    positive = F.logsigmoid((c * context(near)).sum(-1))
    negative = F.logsigmoid(-(context(noise) @ c.unsqueeze(-1)).squeeze(-1)).sum(-1)
    loss = -(positive + negative).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 30 == 29:
        print(step, loss.item())
