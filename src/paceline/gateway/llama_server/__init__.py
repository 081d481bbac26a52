"""The front that speaks the native API of llama.cpp's server, as far as editors' plug-ins need it."""
