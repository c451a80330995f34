"""Layer audit: where each entry of our layers comes from, found again from the lock and its artifacts."""
