"""The plan of a launch as text for other programs: pure, and nothing that is shown here is launched here."""
