"""Programs of one step with a mistake, formatted in many ways."""

from tests.fixes import odd_losses, odd_modules, odd_optimizers

PROGRAMS = [*odd_losses.PROGRAMS, *odd_modules.PROGRAMS, *odd_optimizers.PROGRAMS]
