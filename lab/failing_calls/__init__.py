"""Fails single system calls of a real process: a library in C that is preloaded into it (``LD_PRELOAD``).

``library`` compiles it, and says which call fails and how; ``strace`` checks that it sees every call that
changes a file. It needs Linux, glibc and a C compiler.
"""
