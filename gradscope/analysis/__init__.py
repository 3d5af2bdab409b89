"""Facts derived from a recording, torch-free: what rules, reports and exports read."""
