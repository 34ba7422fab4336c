"""Records in and out: of topics, and of the files of a log.

May import: clusters, endings, once, output, parameters.
"""
