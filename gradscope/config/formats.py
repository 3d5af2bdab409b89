"""The formats of a report, by the names that users give."""

from typing import Literal, TypeGuard, get_args

ReportFormat = Literal["full", "concise", "json", "jsonl", "markdown", "html"]
CIFormat = Literal["github", "gitlab", "junit", "sarif"]
OutputFormat = Literal[ReportFormat, CIFormat]


def is_of_ci(output_format: OutputFormat) -> TypeGuard[CIFormat]:
    """Return whether a format is read by CI, and holds any number of targets."""
    return output_format in get_args(CIFormat)


def holds_several(output_format: OutputFormat) -> bool:
    """Return whether one output of a format holds any number of reports."""
    return output_format == "html" or is_of_ci(output_format)
