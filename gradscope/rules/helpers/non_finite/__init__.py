"""Numbers that are not finite: where they are made, and why."""
