"""What rules measured on sick and healthy programs, and what other limits would give.

`python tests/benchmarks/limits.py RECORDINGS [--programs FOLDER]... [--rule CODE]...
[--members N] [--markdown FILE]`

RECORDINGS is a folder that `diagnosis.py --recordings` and `seeds.py --recordings` wrote. Numbers
are those of `gradscope rule CODE --why`. A program counts once for each number, with the one that
is worst over its layers, steps and seeds.

- A *sick* member is a program whose manifest names the rule, and on which the rule measured the
  number.
- A *healthy* member is a healthy program on which the rule measured it.

Printed are numbers with enough members on both sides: their distribution, and which share of both
sides different limits accuse.
"""

import argparse
import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from programs import Program, add_choice, chosen
from shares import markdown, share

from gradscope.recording.store import load_recording
from gradscope.rules.catalogue import RULES
from gradscope.rules.context import RuleContext
from gradscope.rules.engine import Judge
from gradscope.rules.measurement import Measurement, Side
from gradscope.rules.settings import DEFAULT_SETTINGS


@dataclass(frozen=True, order=True)
class Number:
    """A number that a rule compares with a limit."""

    rule: str
    name: str
    limit: float
    fires: Side

    def worst(self, values: Iterable[float]) -> float:
        """Return the value furthest towards a finding."""
        return (max if self.fires == "above" else min)(values)

    def is_beyond(self, value: float, limit: float) -> bool:
        """Tell whether a value leads to a finding with a limit."""
        return value >= limit if self.fires == "above" else value <= limit


@dataclass
class Members:
    """The worst value of each program."""

    healthy: list[float] = field(default_factory=list)
    sick: list[float] = field(default_factory=list)

    def chance(self, number: Number) -> float:
        """Return the chance that a sick member is worse than a healthy one.

        It is the area under the receiver curve.
        """
        sign = 1 if number.fires == "above" else -1
        wins = sum(0.5 if s == h else sign * s > sign * h for s in self.sick for h in self.healthy)
        return wins / (len(self.sick) * len(self.healthy))


def measurements(path: Path) -> list[Measurement]:
    """Return what the rules compared in a recording."""
    context = RuleContext(load_recording(path))
    Judge(context, DEFAULT_SETTINGS).verdict(RULES)
    return [one for one in context.measurements if not math.isnan(one.value)]


def members_of(programs: Sequence[Program], recordings: Path) -> Mapping[Number, Members]:
    """Return the members of each number."""
    found: dict[Number, Members] = defaultdict(Members)
    for program in programs:
        stem = program.name.replace("/", ".")
        paths = [*recordings.glob(f"{stem}.gradscope"), *recordings.glob(f"{stem}@*.gradscope")]
        values: dict[Number, list[float]] = defaultdict(list)
        for one in (one for path in paths for one in measurements(path)):
            values[Number(one.rule, one.number, one.limit, one.fires)].append(one.value)
        for number, some in values.items():
            if not program.sick:
                found[number].healthy.append(number.worst(some))
            elif number.rule in program.rules:
                found[number].sick.append(number.worst(some))
    return found


def spread(values: Sequence[float]) -> str:
    """Write least, median and largest value."""
    ordered = sorted(values)
    return " / ".join(f"{one:.3g}" for one in (ordered[0], ordered[len(ordered) // 2], ordered[-1]))


def number_table(found: Mapping[Number, Members]) -> list[list[str]]:
    """Return a row per number: its distribution on both sides, and what its limit gives."""
    head = ["number", "limit", "healthy: min / median / max", "sick: min / median / max"]
    rows = [[*head, "healthy beyond", "sick beyond", "area"]]
    for number, members in sorted(found.items()):
        sign = ">=" if number.fires == "above" else "<="
        row = [f"{number.rule} {number.name}", f"{sign} {number.limit:.3g}"]
        row += [spread(members.healthy), spread(members.sick)]
        row += [
            share(sum(number.is_beyond(one, number.limit) for one in side), len(side))
            for side in (members.healthy, members.sick)
        ]
        rows.append([*row, f"{members.chance(number):.3f}"])
    return rows


def curve(number: Number, members: Members) -> Iterator[tuple[float, int, int]]:
    """Yield limits with the members that they accuse: healthy, sick.

    Only limits are left that no other betters on both sides.
    """
    limits = sorted({*members.healthy, *members.sick}, reverse=number.fires == "above")
    points = [
        (
            limit,
            sum(number.is_beyond(one, limit) for one in members.healthy),
            sum(number.is_beyond(one, limit) for one in members.sick),
        )
        for limit in limits
    ]
    best = -1
    for limit, false, right in sorted(points, key=lambda point: (point[1], -point[2])):
        if right > best:
            best = right
            yield limit, false, right


def curve_table(found: Mapping[Number, Members]) -> list[list[str]]:
    """Return the receiver curve of each number."""
    rows = [["number", "limit would be", "healthy beyond", "sick beyond"]]
    for number, members in sorted(found.items()):
        for limit, false, right in curve(number, members):
            rows.append(
                [
                    f"{number.rule} {number.name}",
                    f"{limit:.3g}",
                    f"{false}/{len(members.healthy)}",
                    f"{right}/{len(members.sick)}",
                ]
            )
    return rows


def arguments() -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("recordings", type=Path)
    add_choice(parser)
    parser.add_argument("--members", type=int, default=10, help="least number on each side")
    parser.add_argument("--markdown", type=Path, help="file for the tables")
    return parser.parse_args()


def main() -> None:
    """Read the recordings and print the tables."""
    options = arguments()
    found = {
        number: members
        for number, members in members_of(chosen(options), options.recordings).items()
        if min(len(members.healthy), len(members.sick)) >= options.members
    }
    written = "\n".join(markdown(table) for table in (number_table(found), curve_table(found)))
    print(written)
    if options.markdown:
        options.markdown.write_text(written)


if __name__ == "__main__":
    main()
