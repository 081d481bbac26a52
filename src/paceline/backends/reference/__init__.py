"""The reference backend: models and sampling in plain numpy, written to be read."""
