"""HTTP: what every front over it shares (the app, errors, streams of events, limits), and the operators' routes."""
