"""The command line is made of the functions in flexpredict.api: a table of commands, and how any of them is read."""
