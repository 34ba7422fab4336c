"""Topics, internal topics, partition leadership checks, parked fetches, and reports of failing disks.

May import: configs, controller, execution.
"""
