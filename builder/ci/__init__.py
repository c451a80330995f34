"""Checks for a CI job: lock, policy and image in one go, and what is said of it in the job's own forms."""
