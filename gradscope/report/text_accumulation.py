"""What accumulating micro-batches gives, in the text report."""

from collections.abc import Iterator

from rich.text import Text

from gradscope.analysis.report import Report
from gradscope.report.accumulation import TITLE, Accumulation, headline, remarks
from gradscope.report.page import Page
from gradscope.report.text_findings import hanging

_INDENT = 2


def accumulation_section(report: Report, page: Page) -> Iterator[Text]:
    """Yield how the gradients of micro-batches compare with the full batch's."""
    found = Accumulation.of(report.recording)
    if found is None:
        return
    yield Text(TITLE, style="bold")
    words = page.spell(headline(found, page.signs.times))
    text = hanging(words, page, indent=_INDENT, further=_INDENT)
    if not found.is_sound:
        text.stylize("magenta")
    yield text
    for remark in remarks(found):
        line = hanging(page.spell(remark), page, indent=2 * _INDENT, further=_INDENT)
        line.stylize("dim")
        yield line
