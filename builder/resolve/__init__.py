"""Resolve builder.toml to a lock and fetch what it names, in the resolver container; check each answer."""
