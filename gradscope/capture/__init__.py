"""Watches autograd at work. The only package that touches a live graph; nothing is judged here."""
