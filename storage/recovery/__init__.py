"""From whatever files a crash left in a partition's directory to what a log can start with.

May import: directories, files, index, leader_epochs, producers, segments, settings.
"""
