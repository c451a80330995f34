"""Credentials of model providers on their narrow way into a container: named, read, refused, put in place."""
