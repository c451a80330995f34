"""From a lock to a proved image: contexts, BuildKit, checks of what came out, evidence; and again."""
