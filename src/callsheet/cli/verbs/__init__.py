"""One module per verb, of the same name; each defines `command` and is imported only when the verb is used."""
