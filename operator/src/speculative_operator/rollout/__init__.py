"""Pure decisions about revisions: what is stable, what is on trial, what is on its way out.

`decide` runs ordered gates over a snapshot; each gate is one rule. Nothing here
does IO, reads a clock or draws a random number.
"""
