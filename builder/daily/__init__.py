"""Moving versions: what is newer, what changes, and the edit of builder.toml."""
