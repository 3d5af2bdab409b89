"""Each kind of report as a `Document`, and its texts."""
