"""What tests of the pipeline share: sessions, sources, sinks, tables."""
