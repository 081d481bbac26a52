"""The laboratory: traces of drafters' proposals, their replay with any costs, and comparisons in alternating runs.

It is not part of the installed package. The scripts next to this folder are its commands.
"""
