"""The host side of the git workspace."""
