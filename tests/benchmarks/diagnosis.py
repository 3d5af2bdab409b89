"""Precision and recall over the programs of this repository, for gradscope and for other tools.

`python tests/benchmarks/diagnosis.py [--programs FOLDER]... [--only TEXT] [--jobs N]
[--pairs N --seed N] [--peers PYTHON] [--recordings FOLDER] [--json FILE] [--markdown FILE]`

A folder of programs has a `manifest.json`; `tests/programs/README.md` describes it. The rules'
samples and the sick models of `tests/rules/sick` are measured, too.

- A sick program is *found* when a finding of a right rule has at least the wanted level, and
  *located* when such a finding, or a related location of it, is at a wanted line.
- A healthy program is *accused* when it gets an error, and *warned* when it gets a warning.
- For other tools, a sick program counts as found when any check raises an alarm on it that the
  same check does not raise on its healthy twin. This is generous: the alarm may name another
  cause. Only sick programs with a twin are compared; `--pairs` draws some of them.

Intervals are Wilson's at 95 %.
"""

import argparse
import json
import subprocess
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from pathlib import Path

from forked_reports import BrokenReportError, ForkedReports
from programs import FAMILIES, Program, add_choice, chosen, drawn_pairs, pairs_of
from shares import markdown, share

LEVELS = ("note", "warning", "error")

PEERS = ("torch-audit", "torchtest2", "traintools", "torchmortem")


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


def judged(program: Program, reports: ForkedReports, recordings: Path | None) -> Result:
    """Run gradscope on a program, and compare its findings with what is known."""
    recording = recordings and recordings / f"{program.name.replace('/', '.')}.gradscope"
    try:
        findings = reports.findings(program, recording=recording)
    except BrokenReportError as error:
        return Result(broken=str(error))
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


def alarms_of(python: str, programs: list[Program]) -> Iterable[tuple[str, str, list[str]]]:
    """Yield tool, program and the names of the tool's checks that raised an alarm."""
    driver = Path(__file__).with_name("peer_alarms.py")
    asked = [(tool, one) for one in programs for tool in PEERS]
    lines = [json.dumps([tool, one.kind, str(one.path)]) for tool, one in asked]
    done = subprocess.run(
        [python, str(driver)], input="\n".join(lines), stdout=subprocess.PIPE, text=True, check=True
    )
    for (tool, one), answer in zip(asked, done.stdout.splitlines(), strict=True):
        yield tool, one.name, json.loads(answer)


def count(rows: Iterable[object], condition: Callable[..., bool]) -> int:
    """Return how many rows meet a condition."""
    return sum(condition(row) for row in rows)


def recall_table(
    programs: list[Program], results: dict[str, Result], kind: str, of: Callable[[Program], str]
) -> list[list[str]]:
    """Return recall by kind of program, and a last row of all."""
    sick = [one for one in programs if one.sick]
    rows = [[kind, "found", "at the right line"]]
    for name in [*dict.fromkeys(sorted(map(of, sick), key=_rank)), "all"]:
        members = [results[one.name] for one in sick if name in ("all", of(one))]
        rows.append(
            [
                name,
                share(count(members, lambda one: one.found), len(members)),
                share(count(members, lambda one: one.located), len(members)),
            ]
        )
    return rows


def _rank(name: str) -> int:
    families = [*FAMILIES.values()]
    return families.index(name) if name in families else len(families)


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
    pairs = pairs_of(programs)
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
    add_choice(parser)
    parser.add_argument("--pairs", type=int, help="number of pairs to draw")
    parser.add_argument("--seed", type=int, default=0, help="of the draw")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--peers", metavar="PYTHON", help="interpreter that has the other tools")
    parser.add_argument("--recordings", type=Path, help="folder that keeps every recording")
    parser.add_argument("--json", type=Path, help="file for every result")
    parser.add_argument("--markdown", type=Path, help="file for the tables")
    return parser.parse_args()


def measured(programs: list[Program], options: argparse.Namespace) -> dict[str, Result]:
    """Return the results by program, with those of other tools if an interpreter has them."""
    reports = ForkedReports(options.jobs)
    with ThreadPoolExecutor(options.jobs) as pool:
        judgements = pool.map(lambda one: judged(one, reports, options.recordings), programs)
        results = dict(zip((one.name for one in programs), judgements, strict=True))
    if options.peers:
        compared = [one for one in programs if one.twin or not one.sick]
        for tool, name, alarms in alarms_of(options.peers, compared):
            results[name].alarms[tool] = alarms
    return results


def main() -> None:
    """Measure, and print what is wrong and the tables."""
    options = arguments()
    programs = chosen(options)
    if options.pairs:
        programs = drawn_pairs(programs, options.pairs, options.seed)
    if options.recordings:
        options.recordings.mkdir(parents=True, exist_ok=True)
    results = measured(programs, options)
    for line in filter(None, (verdict(one, results[one.name]) for one in programs)):
        print(line)
    tables = [
        recall_table(programs, results, "family", lambda one: one.family),
        recall_table(programs, results, "split", lambda one: one.split),
        healthy_table(programs, results),
    ]
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
