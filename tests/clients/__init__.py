"""Clients that people use, before a real server with a real model; `make test-clients` runs them."""
