"""Texts for the rules on exceptions of autograd."""

import re
from collections.abc import Iterator

from gradscope.analysis.ranks.job import is_communication
from gradscope.recording.evidence.failures import AutogradErrorRecord, ErrorKind
from gradscope.recording.finding import RelatedLocation
from gradscope.rules.context import RuleContext
from gradscope.rules.rule import Evidence


def errors_of(context: RuleContext, kind: ErrorKind) -> Iterator[AutogradErrorRecord]:
    """Yield the errors of one kind.

    What a training script catches and goes on from is left to it.
    """
    if context.run is not None and context.run.goes_on:
        return
    for record in context.recording.evidence_of(AutogradErrorRecord):
        if record.kind == kind and not _is_of_other_rank(context, record):
            yield record


def _is_of_other_rank(context: RuleContext, record: AutogradErrorRecord) -> bool:
    """Return whether backward raised because another rank was gone or did not answer."""
    return is_communication(record.exception, record.message)


def site_of(record: AutogradErrorRecord, *roles: str) -> int | None:
    """Return the line of the first of the roles that has one."""
    sites = (position.site for role in roles if (position := record.location(role)) is not None)
    return next((site for site in sites if site is not None), None)


def related_to(
    context: RuleContext, record: AutogradErrorRecord, site: int | None, **roles: str
) -> Iterator[RelatedLocation | None]:
    """Yield the other lines that take part, with their messages."""
    reported = {site}
    for role, message in roles.items():
        other = site_of(record, role)
        if other not in reported:
            reported.add(other)
            yield context.related(other, message)


def operation_of(context: RuleContext, record: AutogradErrorRecord) -> str:
    """Return the operation whose backward raised, as `Tanh`; empty if unknown."""
    if record.node is None:
        return record.function or ""
    return re.sub(r"Backward\d*$", "", context.recording.nodes[record.node].operation)


def evidence_of(record: AutogradErrorRecord) -> Evidence:
    """Return what every one of these findings says."""
    if not record.exception:
        return {}
    sentence = first_line(record).partition(". ")[0]
    return {"exception": f"{record.exception}: {sentence}"}


def first_line(record: AutogradErrorRecord) -> str:
    """Return an exception's message as far as it fits into a sentence, without torch's advice."""
    lines = record.message.splitlines()
    return lines[0].partition(" Hint: ")[0].removesuffix(".") if lines else ""
