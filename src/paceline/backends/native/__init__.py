"""The native backend: runs models in the C++ core, on this machine's CPU."""
