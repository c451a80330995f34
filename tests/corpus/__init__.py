"""A seeded corpus of planted credentials with a clean twin: python -m tests.corpus."""
