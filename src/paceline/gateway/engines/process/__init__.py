"""Engines that run as processes on this host. The gateway starts them, watches them and restarts them."""
