"""settings.toml: engine, images, trust in registries, and the way to them."""
