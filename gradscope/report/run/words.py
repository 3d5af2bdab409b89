"""What reports of a run say in words, whatever the format."""

import math
from collections.abc import Callable, Iterator, Sequence

from gradscope.report.figures import counted, figure
from gradscope.report.page import Signs
from gradscope.report.run.columns import Cells, Course
from gradscope.report.run.curves import CurveKind
from gradscope.report.run.optimizers import OptimizerRow
from gradscope.report.run.repeats import Fold, Folds
from gradscope.report.run.timeline import Picture
from gradscope.report.run.training_run import TrainingRun

INCOMPLETE = "run incomplete: the process was killed, or is still running; this is what it recorded"
