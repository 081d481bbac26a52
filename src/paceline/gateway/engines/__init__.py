"""The engines that the gateway stands before: the interface of a replica, and a folder for each kind of engine."""
