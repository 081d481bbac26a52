"""The machine that this process runs on: cores, free memory, control groups, and the top speed of its hardware."""
