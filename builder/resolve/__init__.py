"""Resolve builder.toml to a lock and fetch what it names, in the resolver container; check each answer."""

from builder.resolve.exchange import Progress, Resolver, Secrets, in_container
from builder.resolve.freshness import check_lock, require_fresh
from builder.resolve.lock_making import LockRequest, fetch, make_lock

__all__ = [
    "LockRequest",
    "Progress",
    "Resolver",
    "Secrets",
    "check_lock",
    "fetch",
    "in_container",
    "make_lock",
    "require_fresh",
]
