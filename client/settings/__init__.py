"""Every option of the producers: its name, its default, its rule, and how others write it.

May import: net (TLS and SASL by name), model.
"""
