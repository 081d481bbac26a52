"""The engines behind the gateway: the interface of a replica, and a folder for each kind of engine."""
