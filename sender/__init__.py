"""The trio task that drains the accumulator into ProduceRequests.

Lives here: the Sender, metadata refresh, grouping by node, retries, idempotence.
May import: accumulator, net, record, wire, model.
"""
