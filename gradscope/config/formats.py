"""The formats of a report, by the names that users give."""

from typing import Annotated, Literal, TypeGuard, get_args

from gradscope.frozen import dataclass
from gradscope.options.declaration import Option

ReportFormat = Literal["full", "concise", "json", "jsonl", "markdown", "html"]
CIFormat = Literal["github", "gitlab", "junit", "sarif"]
OutputFormat = Literal[ReportFormat, CIFormat]

OutputFormatOption = Annotated[
    OutputFormat | None,
    Option(
        "--output-format",
        envvar="GRADSCOPE_OUTPUT_FORMAT",
        help="Report format. Default: by the file's extension, otherwise full.",
        panel="Output",
    ),
]
"""Report format; None leaves it to the file's extension, then to the configuration."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FormatOptions:
    """Options of the format of a report."""

    output_format: OutputFormatOption = None


def is_of_ci(output_format: OutputFormat) -> TypeGuard[CIFormat]:
    """Return whether CI services read a format, which holds any number of targets."""
    return output_format in get_args(CIFormat)


def holds_several(output_format: OutputFormat) -> bool:
    """Return whether one output of a format holds any number of reports."""
    return output_format == "html" or is_of_ci(output_format)
