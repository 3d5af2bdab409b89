"""Precision and recall over the programs of this repository, for gradscope and for other tools.

`python tests/benchmarks/diagnosis.py [--programs FOLDER]... [--only TEXT] [--jobs N]
[--peers PYTHON] [--json FILE] [--markdown FILE]`

A folder of programs has a `manifest.json`; `tests/programs/README.md` describes it. The rules'
samples and the sick models of `tests/rules/sick` are measured, too.

- A sick program is *found* when a finding of a right rule has at least the wanted level, and
  *located* when such a finding, or a related location of it, is at a wanted line.
- A healthy program is *accused* when it gets an error, and *warned* when it gets a warning.
- For other tools, a sick program counts as found when any check raises an alarm on it that the
  same check does not raise on its healthy twin. This is generous: the alarm may name another
  cause. Only sick programs with a twin are compared.

Intervals are Wilson's at 95 %.
"""

import argparse
import json
import math
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

from gradscope.rules.catalogue import RULES
from tests.rules.inspecting import marked_lines

ROOT = Path(__file__).parents[2]

LEVELS = ("note", "warning", "error")
TIMEOUT = 180.0
"""Seconds after which a program is given up."""

PEERS = ("torch-audit", "torchtest2", "traintools", "torchmortem")

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
    """`train` for a script that runs, `model` for a file to inspect."""
    sick: bool
    rules: frozenset[str] = frozenset()
    """Codes of the rules that name the mistake."""
    level: str = "warning"
    """Lowest level that a right finding has."""
    lines: frozenset[int] = frozenset()
    """Lines that cause the mistake."""
    twin: str | None = None
    """Name of the healthy program that differs by the mistake alone."""

    @property
    def family(self) -> str:
        """Family of the first right rule; `healthy` for a healthy program."""
        return FAMILIES[min(self.rules)[2]] if self.rules else "healthy"


@dataclass(kw_only=True)
class Result:
    """What gradscope and the other tools said about a program."""

    broken: str | None = None
    """Why there is no report."""
    findings: list[tuple[str, str]] = field(default_factory=list)
    """Code and level of each finding."""
    found: bool = False
    located: bool = False
    alarms: dict[str, list[str]] = field(default_factory=dict)
    """Names of the checks that raised an alarm, by tool."""

    def has(self, level: str) -> bool:
        """Tell whether there is a finding of a level."""
        return any(level == one for _, one in self.findings)


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
            twin=_twin(case, folder, cases),
        )
        for case in cases
    ]


def _twin(case: dict, folder: Path, cases: list[dict]) -> str | None:
    if not case.get("twin"):
        return None
    twin = next(one for one in cases if case["twin"] in (one["file"], one["id"]))
    return f"{folder.name}/{twin['id']}"


def samples() -> list[Program]:
    """Return the samples of the rules and the sick models of their tests."""
    found = [
        Program(
            name=f"sample_models/{rule.name}",
            path=path,
            kind="train" if rule.needs_run else "model",
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
    sick = sorted((ROOT / "tests" / "rules" / "sick").glob("gs*.py"))
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


def judged(program: Program) -> Result:
    """Run gradscope on a program, and compare its findings with what is known."""
    with tempfile.TemporaryDirectory() as scratch:
        report = Path(scratch) / "report.json"
        output = ["--output-format", "json", "--output-file", str(report)]
        if program.kind == "train":
            command = ["run", *output, "--save", str(Path(scratch) / "run.gradscope")]
        else:
            command = ["inspect", *output]
        said = _run([sys.executable, "-m", "gradscope", *command, str(program.path)], program)
        try:
            findings = json.loads(report.read_text())["findings"]
        except (OSError, ValueError, KeyError, TypeError):
            return Result(broken=said.strip()[-200:] or "no output")
    right = [
        one
        for one in findings
        if one["rule"] in program.rules
        and LEVELS.index(one["severity"]) >= LEVELS.index(program.level)
    ]
    locations = [
        location
        for one in right
        for location in (one.get("location"), *(one.get("related") or ()))
        if location and Path(location.get("file") or "").name == program.path.name
    ]
    return Result(
        findings=[(one["rule"], one["severity"]) for one in findings],
        found=bool(right),
        located=any(location.get("line") in program.lines for location in locations),
    )


def alarms_of(tool: str, program: Program, python: str) -> list[str]:
    """Return the names of the checks of another tool that raised an alarm on a program."""
    driver = Path(__file__).with_name("peer_alarms.py")
    command = [python, str(driver), tool, program.kind, str(program.path)]
    try:
        return json.loads(_run(command, program, errors=False) or "[]")
    except ValueError:
        return []


def _run(command: list[str], program: Program, *, errors: bool = True) -> str:
    """Run a command beside a program, and return what it wrote."""
    try:
        done = subprocess.run(
            command,
            cwd=program.path.parent,
            env=os.environ | {"OMP_NUM_THREADS": "1"},
            capture_output=True,
            text=True,
            timeout=TIMEOUT,
        )
    except subprocess.TimeoutExpired:
        return f"no answer in {TIMEOUT:.0f} s"
    return done.stdout + (done.stderr if errors else "")


def interval(successes: int, trials: int) -> tuple[float, float]:
    """Return Wilson's interval of a share at 95 %."""
    if not trials:
        return 0.0, 1.0
    z = 1.959964
    share = successes / trials
    centre = share + z * z / (2 * trials)
    half = z * math.sqrt(share * (1 - share) / trials + z * z / (4 * trials * trials))
    scale = 1 + z * z / trials
    return (centre - half) / scale, (centre + half) / scale


def share(successes: int, trials: int) -> str:
    """Write a share with its interval, as `9/10 (60-98 %)`."""
    if not trials:
        return "-"
    low, high = interval(successes, trials)
    return f"{successes}/{trials} ({low * 100:.0f}-{high * 100:.0f} %)"


def count(rows: Iterable[object], condition: Callable[..., bool]) -> int:
    """Return how many rows meet a condition."""
    return sum(condition(row) for row in rows)


def family_table(programs: list[Program], results: dict[str, Result]) -> list[list[str]]:
    """Return recall by family, and a last row of all."""
    sick = [one for one in programs if one.sick]
    names = sorted({one.family for one in sick}, key=[*FAMILIES.values(), "healthy"].index)
    rows = [["family", "found", "at the right line"]]
    for name in [*names, None]:
        members = [results[one.name] for one in sick if name in (None, one.family)]
        rows.append(
            [
                name or "all",
                share(count(members, lambda one: one.found), len(members)),
                share(count(members, lambda one: one.located), len(members)),
            ]
        )
    return rows


def healthy_table(programs: list[Program], results: dict[str, Result]) -> list[list[str]]:
    """Return the rates of alarms on healthy programs."""
    healthy = [results[one.name] for one in programs if not one.sick]
    return [
        ["healthy programs", "with an error", "with a warning"],
        [
            str(len(healthy)),
            share(count(healthy, lambda one: one.has("error")), len(healthy)),
            share(count(healthy, lambda one: one.has("warning")), len(healthy)),
        ],
    ]


def peer_table(programs: list[Program], results: dict[str, Result]) -> list[list[str]]:
    """Return what each tool tells apart, on the same pairs of programs."""
    by_name = {one.name: one for one in programs}
    pairs = [
        (one, by_name[one.twin])
        for one in programs
        if one.sick and one.twin and one.twin in by_name
    ]
    rows = [["tool", "programs", "sick, told from their twin", "healthy with an alarm"]]
    for tool in ("gradscope", *PEERS):
        taken = [pair for pair in pairs if tool != "torchtest2" or pair[0].kind == "model"]
        told = count(
            taken,
            lambda pair, tool=tool: bool(
                _alarms(results[pair[0].name], tool) - _alarms(results[pair[1].name], tool)
            ),
        )
        twins = {twin.name for _, twin in taken}
        false = count(twins, lambda name, tool=tool: bool(_alarms(results[name], tool)))
        rows.append([tool, str(len(taken)), share(told, len(taken)), share(false, len(twins))])
    return rows


def _alarms(result: Result, tool: str) -> set[str]:
    if tool != "gradscope":
        return set(result.alarms.get(tool, ()))
    return {code for code, level in result.findings if level != "note"}


def markdown(table: list[list[str]]) -> str:
    """Write a table in Markdown."""
    head, *rows = table
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines) + "\n"


def verdict(program: Program, result: Result) -> str | None:
    """Tell what is wrong with the answer about a program, in a line; None for nothing."""
    said = ", ".join(sorted({f"{code} {level}" for code, level in result.findings})) or "nothing"
    wanted = "/".join(sorted(program.rules))
    if result.broken:
        return f"BROKEN    {program.name}: {result.broken}"
    if program.sick and not result.found:
        return f"MISSED    {program.name}: wanted {wanted} {program.level}, said {said}"
    if program.sick and not result.located:
        return f"ELSEWHERE {program.name}: wanted {wanted} at {sorted(program.lines)}"
    if not program.sick and (result.has("error") or result.has("warning")):
        return f"ACCUSED   {program.name}: {said}"
    return None


def arguments() -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--programs", type=Path, action="append", help="folder with a manifest")
    parser.add_argument("--only", default="", help="part of a program's name")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--peers", metavar="PYTHON", help="interpreter that has the other tools")
    parser.add_argument("--json", type=Path, help="file for every result")
    parser.add_argument("--markdown", type=Path, help="file for the tables")
    return parser.parse_args()


def chosen_programs(options: argparse.Namespace) -> list[Program]:
    """Return the programs that the command line asks for."""
    folders = options.programs or sorted(
        one.parent for one in (ROOT / "tests" / "programs").glob("*/manifest.json")
    )
    programs = [one for folder in folders for one in programs_of(folder.resolve())]
    programs += [] if options.programs else samples()
    return [one for one in programs if options.only in one.name]


def measured(programs: list[Program], jobs: int, peers: str | None) -> dict[str, Result]:
    """Return the results by program, with those of other tools if an interpreter has them."""

    def answer(program: Program) -> Result:
        result = judged(program)
        if peers and (program.twin or not program.sick):
            result.alarms = {tool: alarms_of(tool, program, peers) for tool in PEERS}
        return result

    with ThreadPoolExecutor(jobs) as pool:
        return dict(zip((one.name for one in programs), pool.map(answer, programs), strict=True))


def main() -> None:
    """Measure, and print what is wrong and the tables."""
    options = arguments()
    programs = chosen_programs(options)
    results = measured(programs, options.jobs, options.peers)
    for line in filter(None, (verdict(one, results[one.name]) for one in programs)):
        print(line)
    tables = [family_table(programs, results), healthy_table(programs, results)]
    tables += [peer_table(programs, results)] if options.peers else []
    written = "\n".join(markdown(table) for table in tables)
    print("\n" + written)
    if options.markdown:
        options.markdown.write_text(written)
    if options.json:
        rows = {name: asdict(result) for name, result in results.items()}
        options.json.write_text(json.dumps(rows, indent=1))


if __name__ == "__main__":
    main()
