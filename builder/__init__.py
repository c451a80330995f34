"""Building images, and the command line."""
