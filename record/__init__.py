"""Record batches as bytes: build, seal, read, compress.

Lives here: message format 2 and those before it, the codecs; ``kernel/`` with the hot parts as twins (Python,
Cython), ``arrow/`` with tables whose columns become records.
May import: model.
"""
