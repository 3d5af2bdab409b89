"""Rules about momentum and weight decay."""
