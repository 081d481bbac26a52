"""The command line. Each command has a small file, and `main` registers them all.

There is no logic here that another program could need.
"""
