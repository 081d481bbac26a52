"""The native backend: models in the C++ core, on this machine's CPU."""
