"""What a state keeps: the content store, collecting what nothing holds, one archive for a team."""
