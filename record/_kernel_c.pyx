# cython: language_level=3
IMPL = "c"
