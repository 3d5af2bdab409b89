"""Rules that judge gradients from a recording alone, with near twins in one file."""
