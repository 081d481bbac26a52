"""The ways in which models write tool calls: one file for each format, listed in `registry`."""
