"""Scan images for credentials: every byte, in a process of its own; the report claims what was read."""
