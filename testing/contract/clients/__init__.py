"""The Python clients of the contract, each behind the words of ``vocabulary``.

Each module imports the one client that it is named after, if that is installed.
May import: vocabulary.
"""
