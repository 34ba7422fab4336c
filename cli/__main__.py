"""``python -m splashdam.cli`` runs the command where ``splashdam`` is not on the path."""

from splashdam.cli.entry import main

main()
