"""Makes single system calls of a process fail, with a C library that is preloaded into it (``LD_PRELOAD``).

``library`` compiles it and sets which call fails and how; ``strace`` checks that the library sees every call
that changes a file. Needs Linux, glibc and a C compiler.
"""
