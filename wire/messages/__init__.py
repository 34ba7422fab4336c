"""One file per API key: its request and response, declared once.

May import: fields, message.
"""
