"""What ends a script is told as python tells it, to the byte."""

import os
import subprocess
import sys

import pytest

SCRIPTS = {
    "in_hook": """
        def hook(gradient):
            F.linear(gradient, torch.ones(3, 3))
        output = model(torch.ones(4, 8)).relu()
        output.register_hook(hook)
        torch.autograd.grad(output.sum(), list(model.parameters()))
    """,
    "in_module": """
        hooked = torch.nn.Sequential(torch.nn.ReLU(), torch.nn.Linear(3, 1))
        hooked[0].register_forward_pre_hook(lambda module, args: None)
        try:
            torch.nn.Sequential(model, hooked)(torch.ones(4, 8))
        except RuntimeError as error:
            raise ValueError("shapes") from error
    """,
}
START = """
import torch
import torch.nn.functional as F
model = torch.nn.Linear(8, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(2):
    model(torch.ones(2, 8)).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
"""


def script(body):
    lines = body.strip("\n").splitlines()
    return START + "\n".join(line.removeprefix(" " * 8) for line in lines) + "\n"


@pytest.fixture(scope="module")
def told(tmp_path_factory):
    """What python and gradscope tell on stderr, by script; all run side by side."""
    folder = tmp_path_factory.mktemp("scripts")
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "_TYPER_FORCE_DISABLE_TERMINAL": "1"}
    environment.pop("FORCE_COLOR", None)
    running = {}
    for name, body in SCRIPTS.items():
        (folder / f"{name}.py").write_text(script(body))
        watched = ["-m", "gradscope", "run", "--save", f"{name}.gradscope"]
        for how, options in (("python", []), ("gradscope", watched)):
            running[name, how] = subprocess.Popen(
                [sys.executable, *options, f"{name}.py"],
                cwd=folder,
                env=environment,
                stderr=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
            )
    return {
        key: (process.communicate(timeout=120), process.returncode)
        for key, process in running.items()
    }


@pytest.mark.parametrize("name", SCRIPTS)
def test_a_traceback_is_that_of_python(name, told):
    (out, plain), code = told[name, "python"]
    (watched_out, watched), watched_code = told[name, "gradscope"]
    assert plain.startswith("Traceback")
    assert watched.startswith(plain)
    assert (watched_out, watched_code) == (out, code)
