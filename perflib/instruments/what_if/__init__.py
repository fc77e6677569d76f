"""What would be gained by making a function or a critical section faster, without doing it.

`trial` runs a program with a library (kernels_c/tools/what_if.c) that delays all of its threads but
the one that is in the target: the target is then faster relative to all else (C. Curtsinger and
E. Berger, Coz, SOSP 2015). `targets` finds functions and locks by name, or chooses them.
"""
