"""Two command lines for the help page of each command."""

from collections.abc import Mapping

EXAMPLES: Mapping[str, tuple[str, ...]] = {
    "": (
        "gradscope inspect model.py",
        "gradscope run train.py",
    ),
    "inspect": (
        "gradscope inspect model.py",
        "gradscope inspect 'net.py:Net(10)' --input 8,3,32,32 -o net.html",
    ),
    "check": (
        "gradscope check model.py --fail-level warning",
        "gradscope check --seeds 3 --output-format github",
    ),
    "clip-report": (
        "gradscope clip-report model.py --max-norm auto",
        "gradscope clip-report run.gradscope",
    ),
    "graph": (
        "gradscope graph model.py --depth 2",
        "gradscope graph model.py -o graph.svg",
    ),
    "report": (
        "gradscope report run.gradscope -o run.html --open",
        "gradscope report run.gradscope --step 40",
    ),
    "compare": (
        "gradscope compare before.gradscope after.gradscope --fail-on-regression",
        "gradscope compare model.py --vary dtype=float32,bfloat16",
    ),
    "view": (
        "gradscope view",
        "gradscope view runs --open",
    ),
    "export": (
        "gradscope export run.gradscope --to tensorboard -o logs",
        "gradscope export run.gradscope --to csv -o tables",
    ),
    "fix": (
        "gradscope fix train.gradscope",
        "gradscope fix train.gradscope --verify 50",
    ),
    "rule": (
        "gradscope rule GS201",
        "gradscope rule GS101 --why run.gradscope",
    ),
    "config": (
        "gradscope config",
        "gradscope config fail-level",
    ),
    "run": (
        "gradscope run train.py --epochs 3",
        "gradscope run --check --save run.gradscope -m package.train",
    ),
}
"""By command; those of the program itself under the empty name."""
