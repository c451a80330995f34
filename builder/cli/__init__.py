"""The command line: the only reader of the environment, the clock and the process exit."""
