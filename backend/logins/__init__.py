"""Logins that outlive containers: kept in one place, and leased to one launch where they renew themselves."""
