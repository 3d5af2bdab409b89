import torch
import torch.nn as nn


class CRF(nn.Module):
    def __init__(self, tags):
        super().__init__()
        self.transitions = nn.Parameter(torch.randn(tags, tags) * 0.1)
        self.start = nn.Parameter(torch.zeros(tags))

    def forward(self, scores, tags):
        total = self.start[tags[:, 0]] + scores[:, 0].gather(1, tags[:, :1]).squeeze(1)
        alpha = self.start + scores[:, 0]
        for t in range(1, scores.shape[1]):
            total = total + self.transitions[tags[:, t - 1], tags[:, t]] + scores[:, t].gather(1, tags[:, t : t + 1]).squeeze(1)
            alpha = torch.logsumexp(alpha.unsqueeze(2) + self.transitions, 1) + scores[:, t]
        return (torch.logsumexp(alpha, 1) - total).mean()


class Encoder(nn.Module):
    def __init__(self, vocab=100, dim=24):
        super().__init__()
        self.embed = nn.Embedding(vocab, dim)
        self.conv = nn.Conv1d(dim, dim, 3, padding=1)

    def forward(self, x):
        return torch.relu(self.conv(self.embed(x).transpose(1, 2))).transpose(1, 2)


class NerModel(nn.Module):
    def __init__(self, tags=4):
        super().__init__()
        self.bert = Encoder()
        self.encoder_conv = nn.Linear(24, 24)
        self.fc = nn.Linear(24, tags)
        self.crf = CRF(tags)

    def forward(self, words, tags):
        h = torch.tanh(self.encoder_conv(self.bert(words)))
        return self.crf(self.fc(h), tags)


class NerTrainer:
    def __init__(self, model, args):
        self.model, self.args = model, args
        parameters = []
        params = {"lr": args["lr"], "weight_decay": 1e-2, "params": []}
        for name, param in model.named_parameters():
            if "bert" in name:
                params["params"].append(param)
        parameters.append(params)
        params = {"lr": args["lr"] * 2, "weight_decay": 1e-2, "params": []}
        for name, param in model.named_parameters():
            if "encoder_conv" in name:
                params["params"].append(param)
        parameters.append(params)
        params = {"lr": 5e-2, "weight_decay": 1e-2, "params": []}
        for name, param in model.named_parameters():
            if "crf" in name or name.startswith("fc"):
                params["params"].append(param)
        parameters.append(params)
        self.optimizer = torch.optim.AdamW(parameters)

    def train(self, batches):
        self.model.train()
        for step, (words, tags) in enumerate(batches):
            loss = self.model(words, tags)
            loss.backward()
            self.optimizer.step()
            self.model.zero_grad()
            if step % 15 == 0:
                print(step, loss.item())


def corpus(n):
    table = torch.randint(0, 4, (100,))
    for _ in range(n):
        words = torch.randint(0, 100, (12, 10))
        yield words, table[words]


torch.manual_seed(19)
NerTrainer(NerModel(), {"lr": 3e-3}).train(corpus(60))
