"""One-line edits to security-relevant modules, each with a test that notices: python -m tests.sabotage."""
