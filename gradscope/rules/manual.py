"""The manual of a rule, read from its docstring and those under its thresholds."""

import ast
import dataclasses
import inspect
import sys
from itertools import pairwise
from textwrap import dedent

from gradscope.errors import GradscopeError
from gradscope.frozen import dataclass
from gradscope.recording.finding import Severity
from gradscope.rules.rule import Rule, family_of

HEADINGS = (
    "What it finds",
    "Why it matters",
    "How it is measured",
    "How to fix it",
    "When it may be wrong",
    "Source",
)
"""Headings of a rule's docstring, in order. Each is alone on a line and ends with a colon."""

FIX_HEADING = "Fix safety"
"""Heading before `When it may be wrong`, of the rules that have a fix."""


def headings_of(rule: type[Rule]) -> tuple[str, ...]:
    """Return the headings that a rule's docstring must have."""
    if rule.fix is None:
        return HEADINGS
    position = HEADINGS.index("When it may be wrong")
    return (*HEADINGS[:position], FIX_HEADING, *HEADINGS[position:])


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """A part of a manual."""

    heading: str
    text: str
    """Paragraphs separated by empty lines, each on one line; lines that begin with spaces or a dash
    are unchanged.
    """


@dataclass(frozen=True, slots=True, kw_only=True)
class Threshold:
    """A number of a rule that the configuration may change."""

    name: str
    default: float
    text: str
    """Description of the threshold, with unit and source."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Manual:
    """All that a rule says of itself."""

    code: str
    name: str
    family: str
    level: Severity
    summary: str
    sections: tuple[Section, ...]
    thresholds: tuple[Threshold, ...]
    explains: tuple[str, ...]
    """Codes, or prefixes of codes, of rules whose findings are consequences of this rule's."""

    @property
    def sample(self) -> str:
        """The file in the repository that shows it."""
        return f"sample_models/{self.name.replace('-', '_')}.py"


def summary_of(rule: type[Rule]) -> str:
    """Return the first line of a rule's manual."""
    return inspect.cleandoc(rule.__doc__ or "").partition("\n")[0]


def manual_of(rule: type[Rule]) -> Manual:
    """Return the manual of a rule.

    Raises:
        GradscopeError: Python left the docstrings out.
        ValueError: A heading of its docstring is missing, unknown or out of order, or a threshold
            has no docstring.
    """
    if sys.flags.optimize >= 2:
        raise GradscopeError(
            "the manuals of rules are docstrings, which python -OO leaves out",
            help="unset PYTHONOPTIMIZE, or set it to 1",
        )
    summary, _, rest = inspect.cleandoc(rule.__doc__ or "").partition("\n")
    return Manual(
        code=rule.code,
        name=rule.name,
        family=family_of(rule.code),
        level=rule.level,
        summary=summary,
        sections=_sections(rule, rest),
        thresholds=_thresholds(rule),
        explains=rule.explains,
    )


def _sections(rule: type[Rule], text: str) -> tuple[Section, ...]:
    expected = headings_of(rule)
    bodies: dict[str, list[str]] = {}
    for line in text.splitlines():
        # `cleandoc` has removed the common indentation, so that only headings start at the margin.
        if line and not line[0].isspace():
            bodies[line.removesuffix(":")] = []
        elif bodies:
            bodies[next(reversed(bodies))].append(line)
    if tuple(bodies) != expected:
        found = ", ".join(bodies) or "none"
        raise ValueError(f"{rule.code} has the headings {found}: they are {', '.join(expected)}")
    return tuple(
        Section(heading=heading, text=_joined(dedent("\n".join(lines)).strip("\n")))
        for heading, lines in bodies.items()
    )


def _joined(text: str) -> str:
    """Return the text with each paragraph in one line, and lists and code in their own lines."""
    lines: list[str] = []
    for line in text.splitlines():
        goes_on = lines and lines[-1] and line and not line.startswith((" ", "-", "*"))
        if goes_on and not lines[-1].startswith(" "):
            lines[-1] += f" {line}"
        else:
            lines.append(line.rstrip())
    return "\n".join(lines)


def _thresholds(rule: type[Rule]) -> tuple[Threshold, ...]:
    texts = _docstrings(rule)
    missing = [field.name for field in dataclasses.fields(rule) if field.name not in texts]
    if missing:
        raise ValueError(f"{rule.code} does not say what `{missing[0]}` is")
    defaults = rule()
    return tuple(
        Threshold(name=field.name, default=getattr(defaults, field.name), text=texts[field.name])
        for field in dataclasses.fields(rule)
    )


def _docstrings(rule: type[Rule]) -> dict[str, str]:
    """Return the strings below the fields of a class, which only its source contains."""
    found: dict[str, str] = {}
    # A base class may declare thresholds for several rules. The rule's own text comes first and
    # wins.
    for kind in rule.__mro__[: rule.__mro__.index(Rule)]:
        # Python keeps no docstrings of fields: a string below a field is an expression that has no
        # effect.
        module = ast.parse(inspect.getsource(sys.modules[kind.__module__]))
        classes = (node for node in ast.walk(module) if isinstance(node, ast.ClassDef))
        body = next(one.body for one in classes if one.name == kind.__name__)
        for field, below in pairwise(body):
            if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name):
                text = _string(below)
                if text is not None:
                    found.setdefault(field.target.id, " ".join(inspect.cleandoc(text).split()))
    return found


def _string(statement: ast.stmt) -> str | None:
    if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant):
        value = statement.value.value
        return value if isinstance(value, str) else None
    return None
