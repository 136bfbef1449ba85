"""Commands of the kinds of benchmarks that have packages of their own, which take seconds to import."""
