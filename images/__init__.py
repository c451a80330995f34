"""The vocabulary: pure values. No subprocess, socket, clock or environment."""
