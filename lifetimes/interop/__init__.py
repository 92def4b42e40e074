"""Exchange with other libraries, one module each, importable without the other library."""
