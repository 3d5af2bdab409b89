"""All tables that are exported."""

from gradscope.export.gradients import PARAMETERS, TENSORS
from gradscope.export.steps import STEPS
from gradscope.export.structure import EVENTS, FINDINGS, MODULES

TABLES = {table.name: table for table in (STEPS, PARAMETERS, TENSORS, MODULES, EVENTS, FINDINGS)}
"""By name."""
