"""What tests share, by family; ``tests/`` is on the path, so that they are ``support.FAMILY.NAME``."""
