import warnings
import torch
from torch import nn

warnings.filterwarnings("ignore")
torch.manual_seed(34)
embed = nn.Embedding(25, 16)
mixer = nn.GRU(16, 16, batch_first=True)
decode = nn.Linear(16, 25, bias=False)
decode.weight = embed.weight
nn.init.normal_(embed.weight, std=0.2)
params = list(embed.parameters()) + list(mixer.parameters())
optimizer = torch.optim.SGD(params, lr=0.3)
for step in range(100):
    tokens = (torch.randint(0, 25, (16, 1)) + 2 * torch.arange(9)) % 25
    logits = decode(mixer(embed(tokens[:, :-1]))[0])
    loss = nn.functional.cross_entropy(logits.reshape(-1, 25), tokens[:, 1:].reshape(-1))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 25 == 24:
        print(step, loss.item())
