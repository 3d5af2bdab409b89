"""gradscope in notebooks, executed with nbconvert in a real kernel."""

import json
import os
import re
import subprocess
import sys

import pytest

from tests.nightly import some_on_push

pytestmark = pytest.mark.nightly  # a kernel takes as long as a hundred tests

pytest.importorskip("ipykernel")
pytest.importorskip("nbconvert")

SETUP = """\
import torch, gradscope
from torch import nn
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(4, 3), nn.Linear(3, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)"""
WATCH = """\
with gradscope.watch() as watch:
    for _ in range(4):
        loss = model(torch.randn(8, 4)).square().mean()
        loss.backward()
        optimizer.step()
watch"""
MAGIC = """\
%%gradscope watched
for _ in range(4):
    loss = model(torch.randn(8, 4)).square().mean()
    loss.backward()
    optimizer.step()
torch.get_num_threads() and 'the value of the cell'"""
CELLS = {
    "setup": SETUP,
    "watch": WATCH,
    "load": "%load_ext gradscope",
    "magic": MAGIC,
    "printed": "print(watched.findings[0].location.file, watched.report())",
    "inspected": "gradscope.inspect(model, torch.randn(2, 4), lambda y: y.detach().mean())",
    "wrong": "%%gradscope --nothing\n1",
    "quiet": "%%gradscope\nx = 1",
    "raises": "%%gradscope kept\n1 / 0",
}


@pytest.fixture(scope="module", name="outputs")
def _outputs(tmp_path_factory):
    """Return the outputs of the cells by name, each as stream text and as HTML."""
    folder = tmp_path_factory.mktemp("notebook")
    kernel = folder / "kernels" / "here" / "kernel.json"
    kernel.parent.mkdir(parents=True)
    start = [sys.executable, "-m", "ipykernel_launcher", "-f", "{connection_file}"]
    kernel.write_text(json.dumps({"argv": start, "display_name": "here", "language": "python"}))
    cells = [
        {"cell_type": "code", "source": source, "metadata": {}, "outputs": [], "id": name}
        | {"execution_count": None}
        for name, source in CELLS.items()
    ]
    about = {"kernelspec": {"name": "here", "display_name": "here", "language": "python"}}
    notebook = {"cells": cells, "metadata": about, "nbformat": 4, "nbformat_minor": 5}
    (folder / "in.ipynb").write_text(json.dumps(notebook))
    execute = ["-m", "nbconvert", "--to", "notebook", "--execute", "--allow-errors"]
    done = subprocess.run(
        [sys.executable, *execute, "in.ipynb", "--output", "out.ipynb"],
        cwd=folder,
        env={**os.environ, "JUPYTER_PATH": str(folder), "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    executed = json.loads((folder / "out.ipynb").read_text())["cells"]
    return {one["id"]: one["outputs"] for one in executed}


def html_of(outputs):
    (found,) = [one["data"]["text/html"] for one in outputs if "text/html" in one.get("data", {})]
    return "".join(found)


def text_of(outputs):
    return "".join("".join(one.get("text", "")) for one in outputs)


@pytest.mark.parametrize(("name", "cell"), some_on_push([("watch", 2), ("magic", 4)], 2))
def test_report_names_the_line_of_the_cell(name, cell, outputs):
    html = html_of(outputs[name])
    assert "GS301" in html
    assert f"Cell [{cell}], line 4" in html
    assert "/ipykernel" not in html


@pytest.mark.parametrize("name", ["watch", "magic"])
def test_report_has_the_code_the_remedy_and_charts_without_network(name, outputs):
    html = html_of(outputs[name])
    assert re.search(r"<b>\s+4\s+loss.backward\(\)</b>", html.replace("    loss", "loss"))
    assert "call zero_grad() once per step" in html
    assert html.count("<svg") >= 4
    assert html.count("<rect") >= 16
    assert not re.search(r"https?://|<script|<link", html)


def test_magic_returns_the_value_of_the_cell(outputs):
    (value,) = [one for one in outputs["magic"] if one["output_type"] == "execute_result"]
    assert "".join(value["data"]["text/plain"]) == "'the value of the cell'"


def test_printed_report_names_the_line_of_the_cell(outputs):
    (only,) = outputs["printed"]
    assert only["text"][0].startswith("Cell [4] ")
    assert "(Cell [4], line 4)" in "".join(only["text"])


def test_inspection_shows_itself(outputs):
    html = html_of(outputs["inspected"])
    assert "Cell [6], line 1" in html


def test_wrong_option_is_one_line_and_no_traceback(outputs):
    assert "%%gradscope: unrecognized arguments: --nothing" in str(outputs["wrong"])
    assert "Traceback" not in str(outputs["wrong"])


def test_cell_without_training_says_so(outputs):
    assert "note: backward was not called" in text_of(outputs["quiet"])


def test_exception_of_the_cell_is_its_own(outputs):
    (error,) = [one for one in outputs["raises"] if one["output_type"] == "error"]
    assert error["ename"] == "ZeroDivisionError"
