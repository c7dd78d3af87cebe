"""The command line, made from the functions in flexpredict.api: a table of commands, and how their words are read."""
