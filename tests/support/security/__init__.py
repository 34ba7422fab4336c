"""Certificates, realms, token endpoints and authorities for one run."""
