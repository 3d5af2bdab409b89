"""Findings of several recordings, those of one cause together."""

from collections.abc import Sequence

from gradscope.recording.finding import Finding
from gradscope.rules.fingerprint import unique_fingerprints


def by_cause(recordings: Sequence[Sequence[Finding]]) -> list[list[tuple[int, Finding]]]:
    """Return the findings of several recordings, grouped by their causes.

    Args:
        recordings: The findings of each.

    Returns:
        Of each cause the findings, with the places of their recordings, in ascending order.
    """
    shown: dict[str, list[tuple[int, Finding]]] = {}
    for position, findings in enumerate(recordings):
        for fingerprint, finding in zip(unique_fingerprints(findings), findings, strict=True):
            shown.setdefault(fingerprint, []).append((position, finding))
    return list(shown.values())
