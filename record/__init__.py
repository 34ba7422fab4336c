"""Record batches as bytes: build, seal, validate, read, compress.

Message format 2 and the older ones, compression; ``kernel/`` with the hot parts as twins (Python and Cython);
``arrow/`` with Arrow tables whose columns become records.
May import: model.
"""
