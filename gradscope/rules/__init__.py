"""Rules that judge gradients from a recording alone, one rule per file."""
