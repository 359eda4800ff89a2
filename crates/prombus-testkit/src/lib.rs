//! Conformance suites for the ports, and fault injection.
