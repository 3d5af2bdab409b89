"""How an option is declared, once for the command line, the configuration and Python."""
