import torch
import torch.nn.functional as F
from torch import nn


class Tagger(nn.Module):
    def __init__(self, vocab, dim, tags):
        super().__init__()
        self.embed = nn.Embedding(vocab, dim)
        self.rnn = nn.GRU(dim, dim, batch_first=True, bidirectional=True)
        self.out = nn.Linear(2 * dim, tags)

    def forward(self, tokens):
        hidden, _ = self.rnn(self.embed(tokens))
        return self.out(hidden)


class Distiller(nn.Module):
    def __init__(self, teacher, student, temperature=2.0, alpha=0.7):
        super().__init__()
        self.teacher = teacher.eval().requires_grad_(False)
        self.student = student
        self.temperature = temperature
        self.alpha = alpha

    def train(self, mode=True):
        super().train(mode)
        self.teacher.eval()
        return self

    def soft_loss(self, student_logits, teacher_logits):
        t = self.temperature
        log_p = F.softmax(student_logits / t, dim=-1)
        q = F.softmax(teacher_logits / t, dim=-1)
        return F.kl_div(log_p.flatten(0, 1), q.flatten(0, 1), reduction="batchmean") * t * t

    def forward(self, tokens, tags):
        student_logits = self.student(tokens)
        with torch.no_grad():
            teacher_logits = self.teacher(tokens)
        hard = F.cross_entropy(student_logits.flatten(0, 1), tags.flatten())
        soft = self.soft_loss(student_logits, teacher_logits)
        return self.alpha * soft + (1 - self.alpha) * hard


def build_model():
    torch.manual_seed(11)
    return Distiller(Tagger(60, 32, 7), Tagger(60, 12, 7))


def build_batch():
    g = torch.Generator().manual_seed(12)
    tokens = torch.randint(0, 60, (8, 15), generator=g)
    return tokens, tokens % 7


def compute_loss(model, batch):
    return model(*batch)
