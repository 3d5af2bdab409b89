"""Programs with and without a mistake, on which gradscope and other tools are measured."""

import argparse
import json
import random
import sys
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

from gradscope.rules.catalogue import RULES
from gradscope.rules.rule import Rule
from tests.rules.inspecting import marked_lines

ROOT = Path(__file__).parents[2]

FAMILIES = {
    "1": "flow",
    "2": "reach",
    "3": "accumulation",
    "4": "clipping",
    "5": "autograd",
    "6": "precision",
    "7": "loss",
    "8": "ranks",
}


@dataclass(frozen=True, kw_only=True)
class Program:
    """A program, and what is known about it."""

    name: str
    path: Path
    kind: str
    """`train` for a script that runs, `model` for a file to inspect, `job` for a script of several
    ranks, which is not measured here."""
    sick: bool
    rules: frozenset[str] = frozenset()
    """Codes of the rules that name the mistake."""
    level: str = "warning"
    """Lowest level that a right finding has."""
    lines: frozenset[int] = frozenset()
    """Lines that cause the mistake."""
    split: str = "open"
    """`held` if the authors of rules had not read it."""
    twin: str | None = None
    """Name of the healthy program that differs by the mistake alone."""

    @property
    def family(self) -> str:
        """Family of the first right rule; `healthy` for a healthy program."""
        return FAMILIES[min(self.rules)[2]] if self.rules else "healthy"


def programs_of(folder: Path) -> list[Program]:
    """Return the programs that a folder's manifest lists."""
    cases = json.loads((folder / "manifest.json").read_text())["cases"]
    return [
        Program(
            name=f"{folder.name}/{case['id']}",
            path=folder / case["file"],
            kind=case["kind"],
            sick=case["label"] == "sick",
            rules=frozenset(case.get("rules") or ()),
            level=case.get("severity", "warning"),
            lines=frozenset((*case.get("fault_lines", ()), *case.get("also_acceptable_lines", ()))),
            split=case.get("split", "open"),
            twin=_twin(case, folder, cases),
        )
        for case in cases
    ]


def _twin(case: dict, folder: Path, cases: list[dict]) -> str | None:
    if not case.get("twin"):
        return None
    twin = next(one for one in cases if case["twin"] in (one["file"], one["id"]))
    return f"{folder.name}/{twin['id']}"


def _kind(rule: Rule) -> str:
    if FAMILIES[rule.code[2]] == "ranks":
        return "job"
    return "train" if rule.needs_run else "model"


def samples() -> list[Program]:
    """Return the samples of the rules and the sick models of their tests."""
    found = [
        Program(
            name=f"sample_models/{rule.name}",
            path=path,
            kind=_kind(rule),
            sick=True,
            rules=frozenset((rule.code,)),
            level="note",
            lines=frozenset(marked_lines(path, f"# {rule.code}")),
        )
        for rule in RULES
        # Its sample needs limits of the user's own.
        if rule.code != "GS113"
        and (path := ROOT / "sample_models" / f"{rule.name.replace('-', '_')}.py").exists()
    ]
    sick = sorted((ROOT / "tests" / "rules" / "sick").glob("*/gs*.py"), key=lambda one: one.name)
    return found + [
        Program(
            name=f"sick/{path.stem}",
            path=path,
            kind="model",
            sick=True,
            rules=frozenset((path.stem[:5].upper(),)),
            level="note",
            lines=frozenset(marked_lines(path, "# <-")),
        )
        for path in sick
    ]


def add_choice(parser: argparse.ArgumentParser) -> None:
    """Add the options that choose programs."""
    parser.add_argument("--programs", type=Path, action="append", help="folder with a manifest")
    parser.add_argument("--only", default="", help="part of a program's name")
    parser.add_argument("--rule", action="append", help="code: leave out mistakes of other rules")


def chosen(options: argparse.Namespace) -> list[Program]:
    """Return the programs that the command line asks for."""
    folders = options.programs or sorted(
        one.parent for one in (ROOT / "tests" / "programs").glob("*/manifest.json")
    )
    programs = [one for folder in folders for one in programs_of(folder.resolve())]
    programs += [] if options.programs else samples()
    return [
        one
        for one in programs
        if options.only in one.name
        and one.kind != "job"
        and (not (options.rule and one.sick) or one.rules.intersection(options.rule))
    ]


def pairs_of(programs: list[Program]) -> list[tuple[Program, Program]]:
    """Return the sick programs that have a twin, each with it."""
    by_name = {one.name: one for one in programs}
    return [
        (one, by_name[one.twin])
        for one in programs
        if one.sick and one.twin and one.twin in by_name
    ]


def drawn_pairs(programs: list[Program], number: int, seed: int) -> list[Program]:
    """Return the programs of pairs that are drawn at random."""
    drawn = random.Random(seed).sample(pairs_of(programs), number)
    return list(dict.fromkeys(one for pair in drawn for one in pair))
