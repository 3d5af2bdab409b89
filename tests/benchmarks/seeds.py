"""Rates of alarms on healthy programs over seeds.

`python tests/benchmarks/seeds.py [--programs FOLDER]... [--only TEXT] [--number N] [--seeds N]
[--minutes N] [--jobs N] [--recordings FOLDER] [--markdown FILE]`

A run with another seed is a run of a copy of the program in which every call of `manual_seed` and
`random.seed` gets a seed that is larger by a fixed offset. Initial weights, data and dropout
change with it. A model without a seed of its own gets another `--seed`.

Programs are drawn at random. Each alarm is printed as it comes.
"""

import argparse
import re
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random

from forked_reports import BrokenReportError, ForkedReports
from programs import Program, add_choice, chosen
from shares import markdown, share

_SEED = re.compile(r"(?<=\.)((?:manual_)?seed\()(?=[^)])")

_STRIDE = 1000
"""Between offsets, so that programs whose own seeds are neighbours do not meet."""


@dataclass(frozen=True, kw_only=True)
class Run:
    """A program with a seed, and what gradscope said."""

    program: str
    number: int
    """0 for the program as it is."""
    alarms: Sequence[dict] = ()
    """Findings above a note."""
    broken: str | None = None

    def lines(self) -> Iterator[str]:
        """Yield a line for each alarm."""
        if self.broken:
            yield f"BROKEN {self.program}, seed {self.number}: {self.broken}"
        for one in self.alarms:
            line = (one.get("location") or {}).get("line")
            yield (
                f"{one['severity'].upper()} {self.program}:{line}, seed {self.number}: "
                f"{one['rule']} {one['message']}"
            )


def reseeded(source: str, offset: int) -> str:
    """Return a source with other seeds, at the same lines."""
    return _SEED.sub(rf"\g<1>{offset} + ", source)


def run_of(program: Program, number: int, reports: ForkedReports, recordings: Path | None) -> Run:
    """Run gradscope on a program with another seed."""
    offset = number * _STRIDE
    name = f"{program.name.replace('/', '.')}@{number}.gradscope"
    options = ["--seed", str(offset)] if program.kind == "model" else []
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / program.path.name
        copy.write_text(reseeded(program.path.read_text(), offset))
        try:
            findings = reports.findings(
                replace(program, path=copy), *options, recording=recordings and recordings / name
            )
        except BrokenReportError as error:
            return Run(program=program.name, number=number, broken=str(error))
    alarms = [one for one in findings if one["severity"] != "note"]
    return Run(program=program.name, number=number, alarms=alarms)


def measured(
    programs: Sequence[Program],
    options: argparse.Namespace,
    tell: Callable[[str], None],
) -> list[Run]:
    """Return the runs of programs with each seed, as far as the time reaches."""
    reports = ForkedReports(options.jobs)
    end = time.monotonic() + options.minutes * 60

    def runs(program: Program) -> list[Run]:
        found = []
        for number in range(options.seeds if time.monotonic() < end else 0):
            found.append(run_of(program, number, reports, options.recordings))
            for line in found[-1].lines():
                tell(line)
        return found

    with ThreadPoolExecutor(options.jobs) as pool:
        return [run for some in pool.map(runs, programs) for run in some]


def total_table(runs: Sequence[Run]) -> list[list[str]]:
    """Return the rates of runs with an error and with a warning."""
    answered = [run for run in runs if not run.broken]
    row = [str(len({run.program for run in answered})), str(len(answered))]
    for level in ("error", "warning"):
        hit = sum(any(one["severity"] == level for one in run.alarms) for run in answered)
        row.append(share(hit, len(answered)))
    return [["healthy programs", "runs", "with an error", "with a warning"], row]


def rule_table(runs: Sequence[Run]) -> list[list[str]]:
    """Return how often each rule raised an alarm, those that never did left out."""
    answered = [run for run in runs if not run.broken]
    hits = Counter(
        pair for run in answered for pair in {(one["rule"], one["severity"]) for one in run.alarms}
    )
    rows = [[*pair, share(count, len(answered))] for pair, count in sorted(hits.items())]
    return [["rule", "level", "runs"], *rows]


def arguments() -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    add_choice(parser)
    parser.add_argument("--number", type=int, default=60, help="number of programs to draw")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--minutes", type=float, default=60, help="begin no program after these")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--recordings", type=Path, help="folder that keeps every recording")
    parser.add_argument("--markdown", type=Path, help="file for the tables")
    return parser.parse_args()


def main() -> None:
    """Measure, and print each alarm and the tables."""
    options = arguments()
    healthy = [one for one in chosen(options) if not one.sick]
    drawn = Random(0).sample(healthy, min(options.number, len(healthy)))
    if options.recordings:
        options.recordings.mkdir(parents=True, exist_ok=True)
    runs = measured(drawn, options, lambda line: print(line, flush=True))
    written = "\n".join(markdown(table) for table in (total_table(runs), rule_table(runs)))
    print("\n" + written)
    if options.markdown:
        options.markdown.write_text(written)


if __name__ == "__main__":
    main()
