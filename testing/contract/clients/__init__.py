"""The Python clients of the contract, each behind the words of ``vocabulary``.

May import: what ``testing.contract`` may; and each module the one client that it is named after, if that is
installed.
"""
