"""The test suite. It is a package so that its support modules can be imported by name."""
