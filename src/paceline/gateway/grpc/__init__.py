"""gRPC: the server, what all its calls share, and Paceline's own service."""
