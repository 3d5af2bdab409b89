"""The sections on logits and experts, of models with attention or a mixture of experts alone."""

import torch
from torch import nn
from torch.nn import functional

from gradscope.analysis.report import Report
from gradscope.report.document import Share, Table
from gradscope.report.documents.attention import attention_sections
from gradscope.rules.engine import judge
from tests.rules.watching import recording_of


class Mixed(nn.Module):
    """Attention with two heads, then two of four experts; the last expert is never chosen."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.attention = nn.MultiheadAttention(8, 2, batch_first=True)
        self.router = nn.Linear(8, 4)
        self.experts = nn.ModuleList(nn.Linear(8, 8) for _ in range(4))
        with torch.no_grad():
            self.router.bias[3] = -100.0

    def forward(self, x):
        x = self.attention(x, x, x, need_weights=False)[0].flatten(0, 1)
        weights, chosen = self.router(x).softmax(-1).topk(2, dim=-1)
        result = torch.zeros_like(x)
        for index, expert in enumerate(self.experts):
            rows, rank = (chosen == index).nonzero(as_tuple=True)
            result = result.index_add(0, rows, weights[rows, rank, None] * expert(x[rows]))
        return result


def trained(model, shape, folder):
    def loop():
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
        for _ in range(2):
            optimizer.zero_grad()
            functional.cross_entropy(model(torch.randn(*shape)), torch.arange(60) % 8).backward()
            optimizer.step()

    torch.manual_seed(0)
    recording = recording_of(loop, folder)
    return Report.from_recording(recording, judge(recording))


def sections_of(model, shape, folder):
    report = trained(model, shape, folder)
    return {one.title: one.blocks[0] for one in attention_sections(report)}


def test_logits_by_head_and_the_share_of_experts_are_shown(tmp_path):
    found = sections_of(Mixed(), (20, 3, 8), tmp_path)
    assert list(found) == ["Logits", "Experts"]
    logits, experts = found["Logits"], found["Experts"]
    assert isinstance(logits, Table) and isinstance(experts, Table)
    by_kind = {row[1]: row for row in logits.rows}
    assert by_kind["attention"][0].endswith("attention")
    assert by_kind["attention"][2] == "2"
    assert by_kind["output"][5] > 0
    (row,) = experts.rows
    assert row[1:3] == ("2 of 4", "1")
    assert row[4] == Share(0.0)


def test_a_model_without_attention_or_experts_has_no_section(tmp_path):
    assert sections_of(nn.Linear(8, 8), (60, 8), tmp_path) == {}
