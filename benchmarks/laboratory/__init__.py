"""The laboratory: traces of what drafters propose, their replay under any costs, and comparisons by alternating runs.

It is no part of the installed package; the scripts beside this folder are its commands.
"""
