"""Observes autograd at work. The only package that touches a live graph; it does not judge."""
