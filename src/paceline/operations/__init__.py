"""What operators run: verification, benchmarks and the list of models. These functions return data and do not print."""
