"""``splashdam options`` and ``splashdam configs``: the tables of the documentation, without a browser.

May import: commands, output.
"""
