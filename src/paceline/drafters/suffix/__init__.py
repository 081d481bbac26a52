"""The suffix drafter: guesses that a text continues as earlier texts did after the same tokens."""
