"""From whatever files a crash left in a partition's directory to what a log can start with.

May import: producers, leader_epochs, directories, segments, index, files, settings.
"""
