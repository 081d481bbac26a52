"""The command line: one small file a command, `main` puts them together. No logic that a program could want."""
