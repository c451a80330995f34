"""One-line edits to security-relevant modules, each with a test that must go red: python -m tests.sabotage."""
