"""The host side of a run's git: read the operator's commit, write its files, take the agent's commit back.

:mod:`.origin` and :mod:`.reading` are the one reader of the operator's repository; :mod:`.materialise` writes
a tree; :mod:`.producer` is what exports inside, :mod:`.importing` what takes it. Only :mod:`.git` starts git.
The names for embedders are those of the façade, :mod:`backend`.
"""
