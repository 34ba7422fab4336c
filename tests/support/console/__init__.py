"""A browser's side of the console, with and without a Chromium."""
