"""The command line of `gradscope view`, and the server beside `gradscope run --view`."""

import os
import re
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

import pytest

from gradscope.cli.run import view_server
from gradscope.rules.settings import DEFAULT_SETTINGS
from tests.launch.conftest import ENVIRONMENT
from tests.view.conftest import written_run

ADDRESS = re.compile(r"http://127\.0\.0\.1:\d+/[\w-]{32}/")


def fetched(address):
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with opener.open(address, timeout=30) as reply:
        return reply.read().decode()


def test_the_address_goes_to_stdout_and_leads_to_the_list(command, tmp_path, monkeypatch):
    written_run(tmp_path / "run.gradscope")
    found = []
    monkeypatch.setattr(
        "gradscope.cli.view.wait_for_end",
        lambda server: found.append(fetched(server.address)),
    )
    code, out, err = command("view", tmp_path)
    assert code == 0
    assert ADDRESS.fullmatch(out.strip())
    assert "only this machine" in err
    assert "run.gradscope" in found[0]


def test_a_missing_folder_is_named(command, tmp_path):
    code, out, err = command("view", tmp_path / "absent")
    assert (code, out) == (2, "")
    assert err.startswith("error: no such file or folder: ") and "absent" in err


def test_a_script_is_to_be_run_first(command, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("sick.py").write_text("import torch\n")
    code, out, err = command("view", "sick.py")
    assert (code, out) == (2, "")
    assert err.splitlines() == [
        "error: `sick.py` is a Python file, not a recording",
        "  help: gradscope run --save sick.gradscope sick.py",
    ]


def test_a_port_that_is_taken_is_named(command, tmp_path):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        code, out, err = command("view", tmp_path, "--port", taken.getsockname()[1])
    assert (code, out) == (2, "")
    assert err.startswith("error: cannot listen on port ")


def test_ctrl_c_ends_it_with_success(tmp_path):
    process = subprocess.Popen(
        [sys.executable, "-m", "gradscope", "view", str(tmp_path)],
        stdout=subprocess.PIPE,
        text=True,
        env=ENVIRONMENT,
    )
    address = process.stdout.readline().strip()
    assert ADDRESS.fullmatch(address)
    process.send_signal(signal.SIGINT)
    assert process.wait(30) == 0
    process.stdout.close()


def test_the_server_of_a_run_prints_its_address_and_ends_after_the_run(tmp_path, capfd):
    path = written_run(tmp_path / "run.gradscope")
    child = view_server.start_beside(path, DEFAULT_SETTINGS, patience=0)
    text = ""
    while not (address := ADDRESS.search(text)):
        assert child.poll() is None
        time.sleep(0.05)
        text += capfd.readouterr().err
    assert "<h1>train.py</h1>" in fetched(address[0])
    assert child.poll() is None
    child.stdin.close()
    assert child.wait(30) == 0


TRAINING = """
import torch
model = torch.nn.Linear(2, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(20):
    optimizer.zero_grad()
    loss = model(torch.ones(4, 2)).square().mean()
    loss.backward()
    optimizer.step()
print(loss.item().hex())
input()
"""


@pytest.mark.nightly
def test_a_viewed_run_computes_the_same_and_is_shown_until_its_end(tmp_path):
    (tmp_path / "train.py").write_text(f"import torch; torch.manual_seed(0){TRAINING}")
    plain = subprocess.run(
        [sys.executable, "train.py"], cwd=tmp_path, input="\n", capture_output=True, text=True
    )
    process = subprocess.Popen(
        [sys.executable, "-m", "gradscope", "run", "--view", "train.py"],
        cwd=tmp_path,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=ENVIRONMENT,
    )
    line = process.stderr.readline()
    assert line.startswith("note: http://")
    assert process.stdout.readline() == plain.stdout
    address = ADDRESS.search(line)[0]
    (server,) = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    try:
        assert 'class="state running"' in fetched(address)
        process.stdin.write("\n")
        process.stdin.close()
        # The server does not keep the streams of the run open.
        assert "wrote train.gradscope" in process.stderr.read()
        assert process.wait(60) == 0
        assert 'class="state ended"' in fetched(address)
    finally:
        os.kill(int(server), signal.SIGTERM)
    process.stdout.close()
    process.stderr.close()
