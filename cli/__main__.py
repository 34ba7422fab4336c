"""``python -m splashdam.cli`` is the command where it is not on the path."""

from splashdam.cli.entry import main

main()
