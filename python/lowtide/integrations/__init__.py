"""Thin adapters: ``lowtide.integrations.lightning``, ``.transformers``, ``.accelerate``, ``.sinks``. Each imports its library
when it is imported itself, and only then."""
