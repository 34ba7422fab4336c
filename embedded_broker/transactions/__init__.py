"""The transaction coordinator: who may write under a transactional id, and how its transactions end.

``states`` and ``metadata`` are pure: a life as a table, and the changes of one transactional id. ``ending``
says what EndTxn means in which state. ``coordinator`` keeps them in ``__transaction_state``, ``completion``
writes the markers, ``recovery`` finishes at the start what a crash interrupted.
May import: configs, controller, groups, topics.
"""
