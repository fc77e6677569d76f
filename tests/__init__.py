"""Tests of perflib; they mirror the package. A package, so that ``tests`` can be no other one."""
