"""Toy models, scripted drafters and the enumeration of laws: for the tests of this project and of yours."""
