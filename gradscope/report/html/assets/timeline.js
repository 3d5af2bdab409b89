// Draws what led to a step.
