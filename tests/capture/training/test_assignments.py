"""Tests the line of a class that assigns an attribute."""

import inspect

from torch import nn

from gradscope.capture.source.statements import assignments


class Base(nn.Module):
    def __init__(self):
        super().__init__()
        self.inherited = []  # inherited


class Derived(Base):
    def reset(self):
        self.late: int | None = None  # late
        self.early = 2

    def __init__(self):
        super().__init__()
        self.first, (self.second, self.third) = 1, (2, 3)  # second
        self.early = 1  # early


def source(kind: type, attribute: str) -> str | None:
    line = assignments(kind).get(attribute)
    if line is None:
        return None
    lines, first = inspect.findsource(inspect.getmodule(kind))
    assert first == 0
    assert line.code.co_filename == __file__
    return lines[line.number - 1]


def test_assignments_of_every_kind_are_found():
    for attribute in ("inherited", "late", "second", "early"):
        assert source(Derived, attribute).rstrip().endswith(f"# {attribute}")


def test_init_comes_before_other_methods():
    assert assignments(Derived)["early"].code.co_name == "__init__"


def test_what_nobody_assigns_has_no_line():
    assert "missing" not in assignments(Derived)
    assert assignments(type("Made", (), {})) == {}


def test_class_without_source_has_no_line():
    namespace: dict[str, type] = {}
    exec("class Made:\n    def __init__(self):\n        self.kept = []\n", namespace)
    assert assignments(namespace["Made"]) == {}
