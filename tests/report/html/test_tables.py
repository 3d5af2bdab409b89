from dataclasses import replace

from hypothesis import given

from gradscope.recording.finding import Finding, Verdict
from gradscope.report.html.tables import parameter_table, tensor_table
from gradscope.session.report import Report
from tests.report.conftest import build
from tests.report.html.charts.conftest import REPORTS
from tests.report.html.figures import plain
from tests.rules.inspecting import report_of_file


def columns_of(chart):
    return {one["title"]: one for one in plain(chart.content)["columns"]}


def same(found, values):
    """Whether numbers are equal, with NaN like itself and None like nothing else."""
    return all(
        one is other if one is None or other is None else one == other or one != one != other
        for one, other in zip(found, values, strict=True)
    )


@given(REPORTS)
def test_cells_are_the_reports_numbers(report):
    for chart, rows in (
        (parameter_table(report), report.parameters),
        (tensor_table(report), report.tensors),
    ):
        columns = columns_of(chart)
        reads = {
            "gradient norm": lambda grad: grad.norm,
            "rms": lambda grad: grad.rms,
            "largest": lambda grad: grad.absolute_maximum,
            "zero": lambda grad: grad.zero_share,
            "NaN, inf": lambda grad: grad.nonfinite,
        }
        for title, read in reads.items():
            values = [None if row.grad is None else read(row.grad) for row in rows]
            if title in columns:
                assert same(columns[title]["values"], values)
            else:
                assert not any(values)


@given(REPORTS)
def test_weights_and_updates_are_told_of_parameters(report):
    columns = columns_of(parameter_table(report))
    ratios = [row.grad_to_weight for row in report.parameters]
    found = columns.get("gradient / weight", {"values": [None] * len(ratios)})
    assert same(found["values"], ratios)
    assert columns["weight norm"]["values"] == [row.weight_norm for row in report.parameters]


def test_columns_that_tell_nothing_are_left_out(report):
    assert "reason if missing" in columns_of(parameter_table(report))
    columns = columns_of(tensor_table(report))
    assert not {"reason if missing", "findings", "NaN, inf", "call"} & set(columns)
    assert columns["module"] == {"title": "module", "kind": "name", "of": "path"}


def test_rows_link_to_their_modules(report):
    links = plain(parameter_table(report).content)["links"]
    names = [report.modules[at].path for at in links["module"]]
    assert names == [row.module for row in report.parameters]
    tensors = plain(tensor_table(report).content)["links"]
    paths = [None if at is None else report.modules[at].path for at in tensors["module"]]
    assert paths == [row.module for row in report.tensors]


def test_findings_stand_with_what_they_are_about():
    finding = Finding(
        rule="GS102",
        name="vanishing-gradient",
        severity="warning",
        message="",
        location=build().sites[1],
        parameters=("first.weight", "head.weight"),
        remedy="",
        fingerprint="",
    )
    worse = replace(finding, rule="GS103", severity="error", parameters=("first.weight",))
    verdict = Verdict(findings=(finding, worse), ran=("GS102", "GS103"), skipped=())
    report = Report.from_recording(build(), verdict)
    found = columns_of(parameter_table(report))["findings"]["values"]
    assert found == ["error GS103 warning GS102", None, "warning GS102", None, None]
    marked = columns_of(tensor_table(report))["findings"]["values"]
    made = [row.operation for row, codes in zip(report.tensors, marked, strict=True) if codes]
    assert made == ["ReluBackward0"]


def test_lines_are_named_by_what_they_do(tmp_path):
    path = tmp_path / "net.py"
    path.write_text(
        "import torch\nfrom torch import nn\nclass Net(nn.Module):\n"
        "    def __init__(self):\n        super().__init__()\n"
        "        self.used = nn.Linear(4, 1)\n        self.left = nn.Linear(4, 1)\n"
        "    def forward(self, x):\n        return self.used(x)\n"
        "def build_model(): return Net()\ndef build_batch(): return torch.randn(8, 4)\n"
        "def compute_loss(model, batch): return model(batch).square().mean()\n"
    )
    columns = columns_of(parameter_table(report_of_file(path, probe_steps=0)))
    used, made = (
        [value and value.rpartition(":")[2] for value in columns[title]["values"]]
        for title in ("used at", "made at")
    )
    assert used == ["9", "9", None, None]
    assert made == ["6", "6", "7", "7"]
    assert "line" not in columns
