"""The playground: a page for browsers at `/`, which tries the server out through its own API."""
