"""One small protocol, and one dialect module per engine."""
