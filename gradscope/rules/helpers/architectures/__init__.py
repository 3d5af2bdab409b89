"""Facts on kinds of models: vector quantisation, adapters."""
