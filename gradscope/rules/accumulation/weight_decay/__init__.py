"""Rules about weight decay."""
