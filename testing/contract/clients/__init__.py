"""The Python clients of the contract, each with the operations of ``vocabulary``.

Each module imports the client that it is named after; it cannot be imported without that client.
May import: vocabulary.
"""
