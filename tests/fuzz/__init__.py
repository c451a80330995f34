"""Mutated bytes for every reader of untrusted bytes: ``python -m tests.fuzz`` (docs/reference/attacks.md)."""
