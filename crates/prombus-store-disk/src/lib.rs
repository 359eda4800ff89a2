//! store-disk
