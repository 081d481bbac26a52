"""What operators run: verification, benchmarks, the list of models. Functions return dataclasses and print nothing."""
