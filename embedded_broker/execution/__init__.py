"""How a request is executed: the turns of the broker's loop, work beside it, and the handler's answer.

May import: nothing.
"""
