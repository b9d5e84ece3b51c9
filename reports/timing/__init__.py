"""Modelled workgroups of a library: tables, and pictures of their waves."""
