import torch
import torch.nn as nn
import torch.nn.functional as F


class Matcher(nn.Module):
    """Compares a question with the sentences of a passage by attention over words."""

    def __init__(self, vocabulary=120, width=32):
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, width, padding_idx=0)
        self.query = nn.Linear(width, width)
        self.key = nn.Linear(width, width)
        self.combine = nn.Bilinear(width, width, 1)
        self.keep_attention = None

    def attend(self, question, passage, padding):
        score = self.query(question) @ self.key(passage).transpose(1, 2) / question.size(-1) ** 0.5
        weight = torch.softmax(score, dim=-1)
        weight = self.zero_padding(weight, padding)
        self.keep_attention = weight.detach()
        return weight @ passage

    @staticmethod
    def zero_padding(weight, padding):
        weight.permute(0, 2, 1)[padding] = 0.0
        return weight

    def forward(self, question, passage):
        padding = passage == 0
        question, passage = self.embedding(question), self.embedding(passage)
        found = self.attend(question, passage, padding)
        return self.combine(question.mean(1), found.mean(1)).squeeze(-1)


def build_model():
    torch.manual_seed(7)
    return Matcher()


def build_batch():
    generator = torch.Generator().manual_seed(12)
    topic = torch.randint(0, 10, (20, 1), generator=generator)
    label = torch.randint(0, 2, (20,), generator=generator)
    other = torch.where(label.bool().unsqueeze(1), topic, (topic + 3) % 10)
    question = 10 + topic * 10 + torch.randint(0, 10, (20, 6), generator=generator)
    passage = 10 + other * 10 + torch.randint(0, 10, (20, 15), generator=generator)
    lengths = torch.randint(8, 16, (20, 1), generator=generator)
    passage = passage.masked_fill(torch.arange(15) >= lengths, 0)
    return {"question": question, "passage": passage, "label": label.float()}


def loss_fn(output, batch):
    return F.binary_cross_entropy_with_logits(output, batch["label"])
