"""The machine that this process runs on: cores, free memory, control groups, and what the hardware can do at best."""
