"""Images and their evidence to and from a registry: push, pull, and a cache asked by the content key."""
