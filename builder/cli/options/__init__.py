"""What each command takes: its options, and those that several share."""
