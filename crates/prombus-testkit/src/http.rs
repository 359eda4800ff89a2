//! The log over HTTP.
/// x
pub struct HttpLog;
