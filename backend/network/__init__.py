"""The network of a run: an exact list, carried by a relay inside to a socket of the controller (ADR 25)."""
