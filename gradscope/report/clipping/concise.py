"""The report on clipping, a line each."""

from collections.abc import Iterator

from gradscope.analysis.clipping.clipping import Clipping
from gradscope.analysis.clipping.sections import Section
from gradscope.analysis.report import Report
from gradscope.analysis.view import shown_site
from gradscope.phrasing import counted, printable
from gradscope.report.clipping.phrasing import cut_text, headline, remarks
from gradscope.report.concise import finding_line
from gradscope.report.number_format import number, percent
from gradscope.report.signs import in_ascii


def render_concise(report: Report, clipping: Clipping) -> str:
    """Return a line a finding, then some for each line that clips."""
    lines = [finding_line(finding, report) for finding in report.findings]
    for section in clipping.sections:
        position = shown_site(section.site, report.target.root) or report.target.name
        lines += [printable(f"{position}: {in_ascii(text)}") for text in _section(section)]
    return "\n".join(lines)


def _section(section: Section) -> Iterator[str]:
    if section.method is None:
        yield f"nothing clips: {section.words}"
    else:
        advised = ", recommended," if section.is_advised else ""
        yield f"{section.words}{advised} clips {cut_text(section)}"
    for check in section.checks:
        yield f"{'ok' if check.is_right else 'not right'}: {check.words}"
    if section.norms is not None:
        norms = section.norms
        yield (
            f"norm before clipping, of {counted(norms.count, 'step')}: least {number(norms.least)},"
            f" median {number(norms.median)}, 99 % {number(norms.quantiles[-1])}, "
            f"largest {number(norms.greatest)}"
        )
    if section.advice is not None:
        clips = percent(section.advice.share)
        yield f"recommended: max_norm {section.advice.limit:g}, clips {clips}"
    for one in section.contributions.parameters[:3]:
        power = section.contributions.power
        shares = f"{percent(one.share)} of the {power}, max {percent(one.largest)}"
        yield f"{one.name}: {shares}"
    for row in section.methods:
        yield (
            f"{row.words}: clips {percent(row.share)}, coefficient {number(row.coefficient)}, "
            f"cosine {number(row.cosine)}, min {number(row.worst)}"
        )
    yield from (text for text in (headline(section), *remarks(section)) if text)
