"""Record batches as bytes: build, seal, read, compress.

Lives here: message format 2, the codecs, and the hot kernels as twins (Python, Cython) behind ``kernel.py``.
May import: model.
"""
