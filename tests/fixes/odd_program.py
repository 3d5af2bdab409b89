"""A program with a mistake, and the edit that a reviewer would accept.

`added` are the lines that the edit adds, without indentation; None if there must be no edit.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from textwrap import dedent

HEADER = "import torch\nfrom torch import nn\nimport torch.nn.functional as F\n"
REGRESSION = """
def build_batch():
    return torch.randn(8, 4), torch.randn(8)
def build_model():
    return nn.Linear(4, 1)
"""
CLASSES = """
def build_batch():
    return torch.randn(8, 4), torch.arange(8) % 3
def loss_fn(output, target):
    return F.cross_entropy(output, target)
"""
CLASS = "class Net(nn.Module):\n    def __init__(self):\n        super().__init__()\n"


@dataclass(frozen=True, kw_only=True)
class Program:
    """A program of one file, or of several."""

    name: str
    rule: str
    text: str
    added: tuple[str, ...] | None
    encoding: str = "utf-8"
    others: dict[str, str] = field(default_factory=dict)
    """Further files by name."""
    edited: str = ""
    """The file that is edited; empty for the program itself."""
    is_training: bool = False
    """Whether it is a script that trains."""


def adding_to(programs: list[Program]) -> Callable[..., None]:
    """Return a function that adds a program to a list."""

    def add(rule, name, text, *added, around=HEADER, **further):
        programs.append(
            Program(
                name=f"{rule.lower()}_{name}",
                rule=rule,
                text=around + dedent(text).lstrip("\n"),
                added=None if added == (None,) else added,
                **further,
            )
        )

    return add


def adding_trainings_to(programs: list[Program], start: str) -> Callable[..., None]:
    """Return a function that adds a script to a list, behind code that all of them begin with."""
    return partial(adding_to(programs), around=start, is_training=True)
