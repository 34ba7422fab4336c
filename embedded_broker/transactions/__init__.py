"""The transaction coordinator: which producer may write under a transactional id, and how transactions end.

``metadata`` is pure: the states of a transactional id as a table, its changes, epochs and fencing.
``end_txn`` says what EndTxn means in which state. ``coordinator`` keeps the states in
``__transaction_state``, ``markers`` writes the markers of decided transactions, ``verification`` lets a
batch into its transaction (KIP-890), ``hanging_transactions`` ends at the start what a crash left open.
May import: configs, controller, groups, topics.
"""
