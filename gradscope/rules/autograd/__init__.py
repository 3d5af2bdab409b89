"""Rules on errors of autograd, and on wrong instructions to it."""
