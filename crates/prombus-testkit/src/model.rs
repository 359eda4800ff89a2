//! Random commits, and a comparison of everything that can be read of two stores.
