"""What we can say and prove about a digest. Never imports an engine or a process."""
