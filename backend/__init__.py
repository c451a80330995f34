"""Running an admitted image on a container engine."""
