"""A transformer's branches as single calls into C++, for CPUs; compiled once, on the machine."""
