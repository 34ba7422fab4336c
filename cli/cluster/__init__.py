"""Commands for any cluster: topics, groups, the contract, and the benchmark.

May import: commands, connecting, exiting, measuring, output, parameters.
"""
