"""An exception that ends a script is shown as by python, byte for byte."""

import subprocess
import sys

import pytest

from tests.conftest import ENVIRONMENT
from tests.nightly import some_on_push

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


@pytest.mark.nightly
@pytest.mark.parametrize("name", some_on_push(SCRIPTS, 2))
def test_a_traceback_is_that_of_python(name, gradscope_in, tmp_path):
    (tmp_path / "train.py").write_text(script(SCRIPTS[name]))
    environment = {name: value for name, value in ENVIRONMENT.items() if name != "FORCE_COLOR"}
    plain = subprocess.run(
        [sys.executable, "train.py"],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
    )
    watched = gradscope_in(tmp_path, "run", "--save", "r.gradscope", "train.py", FORCE_COLOR="")
    assert plain.stderr.startswith("Traceback")
    assert watched.stderr.startswith(plain.stderr)
    assert (watched.stdout, watched.returncode) == (plain.stdout, plain.returncode)
