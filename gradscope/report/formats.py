"""The formats of a report, by the names that users give."""

from typing import Literal

ReportFormat = Literal["full", "concise", "json", "jsonl", "markdown"]
CIFormat = Literal["github", "gitlab", "junit", "sarif"]
OutputFormat = Literal[ReportFormat, CIFormat]
