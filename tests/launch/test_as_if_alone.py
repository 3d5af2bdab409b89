"""A script can see nothing of gradscope except its frames."""

import pytest

WARNING = """
    import sys, warnings
    import torch
    from torch import nn

    def count(grad):
        warnings.warn("in a hook", stacklevel=2)

    model = nn.Linear(4, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 2)
    scheduler.step()
    torch.optim.SGD([*model.parameters(), model.weight], lr=0.1)
    for step in range(3):
        optimizer.zero_grad()
        out = model(torch.ones(3, 4))
        out.register_hook(count)
        nn.functional.mse_loss(out, torch.ones(3, 1)).backward()
        torch.nn.utils.clip_grad_norm_([], 1.0)
        torch.tensor(out)
        nn.init.kaiming_uniform(model.weight)
        optimizer.step()
        with warnings.catch_warnings(record=True) as seen:
            warnings.simplefilter("always")
            nn.functional.softmax(out)
            torch.nn.utils.clip_grad_norm(model.parameters(), 1.0)
        print([(one.filename, one.lineno, str(one.message)) for one in seen])
    print(len(__warningregistry__), len(warnings.filters))
"""

STATE = """
    import sys
    first = sorted(name.partition(".")[0] for name in sys.modules)
    print([name for name in ("rich", "typer", "pygments", "logging", "random", "numpy", "torch")
           if name in first])
    import atexit, gc, json, os, random, signal, threading, warnings

    def state():
        return [
            sys.argv, sys.path, str(sys.flags), sys.getrecursionlimit(), sys.gettrace(),
            sys.excepthook is sys.__excepthook__, gc.isenabled(), gc.get_threshold(),
            gc.get_freeze_count(), len(gc.callbacks), atexit._ncallbacks(),
            [str(signal.getsignal(number)) for number in signal.valid_signals()],
            [thread.name for thread in threading.enumerate()], str(warnings.filters),
            random.getstate()[1][-1], sorted(os.environ),
            sorted(sys.modules["logging"].root.manager.loggerDict) if "logging" in sys.modules
            else None,
        ]

    print(state())
    import torch
    print(state())
    random.seed(0)
    torch.manual_seed(0)
    weight = torch.ones(3, requires_grad=True)
    optimizer = torch.optim.SGD([weight], lr=0.1)
    for _ in range(3):
        optimizer.zero_grad()
        (weight * 2).sum().backward()
        optimizer.step()
    print(state(), random.random(), float(torch.rand(())))
    atexit.register(lambda: print(random.random(), float(torch.rand(()))))
"""

TRACING = """
    import sys
    seen = []
    def trace(frame, event, argument):
        if frame.f_code.co_filename == __file__:
            seen.append((event, frame.f_lineno))
            return trace
    import torch
    def loss(weight):
        doubled = weight * 2
        return doubled.sum()
    weight = torch.ones(3, requires_grad=True)
    optimizer = torch.optim.SGD([weight], lr=0.1)
    sys.settrace(trace)
    for _ in range(2):
        optimizer.zero_grad()
        loss(weight).backward()
        optimizer.step()
    print(sys.gettrace() is trace)
    sys.settrace(None)
    print(seen)
"""


def _both(start, write, text, *flags):
    """Return what a script writes by python, and by gradscope, each in a new process."""
    write("train.py", text)
    plain = start(*flags, "train.py")
    watched = start(*flags, "-m", "gradscope", "run", "-q", "-o", "report.txt", "train.py")
    assert plain.returncode == 0, plain.stderr
    return plain, watched


@pytest.mark.nightly
def test_warnings_are_of_the_same_lines(start, write):
    plain, watched = _both(start, write, WARNING)
    assert plain.stderr.count("Warning") > 8
    # The findings follow.
    assert watched.stderr.startswith(plain.stderr)
    assert watched.stderr.count("Warning") == plain.stderr.count("Warning")
    assert watched.stdout == plain.stdout


@pytest.mark.nightly
def test_state_of_the_interpreter_is_the_same(start, write):
    plain, watched = _both(start, write, STATE)
    assert plain.stdout.startswith("[]\n")
    assert watched.stdout == plain.stdout


@pytest.mark.nightly
def test_a_trace_function_sees_the_same_lines(start, write):
    plain, watched = _both(start, write, TRACING)
    assert "True" in plain.stdout
    assert watched.stdout == plain.stdout
