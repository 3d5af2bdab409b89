"""What is wrong with gradients, judged from a recording alone: one rule a file."""
